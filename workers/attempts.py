"""What a worker has in hand: messages that wait for a slot, and attempts that run.

    message -> Desk.offer -> Claimer (a batch, one statement) -> ack -> pool child runs the action
                                                             -> Finisher (a batch) records the end

The order is the point: nothing is started before its claim has committed, and nothing is
acknowledged before that either. What never gets a slot stays unacknowledged, for TTL and
`start_by` to decide.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any
from uuid import UUID

from billiard.exceptions import TimeLimitExceeded
from celery.worker import state
from celery.worker.request import Request
from django.conf import settings

from orchestrator import executions
from orchestrator.models import Execution
from orchestrator.reasons import Reason
from workers import child, processes
from workers.runtimes import Call, Outcome

if TYPE_CHECKING:
    from workers.agent import Agent

BACKSTOP_SECONDS = 5.0
"""The pool's hard limit comes this long after the runtime's own, should that one fail."""


class Attempt(Request):
    """One dispatch message, from its delivery to the end of the attempt it asked for.

    A Celery request, so that `celery inspect active`, events and Flower see it as a task.
    """

    execution_id: UUID
    number: int
    """The attempt's number: the fence."""
    execution: Execution
    """As claimed; set by the claim, never reloaded."""
    claimed_at: float
    """By `time.monotonic`."""
    desk: Desk
    is_canceling = False

    def start(self, pool: Any) -> None:
        """Hand the claimed execution to a pool child."""
        call = call_of(self.execution)
        limit_seconds = call.timeout_seconds + call.cancel_grace_seconds + BACKSTOP_SECONDS
        pool.apply_async(
            child.run,
            args=(call,),
            accept_callback=self.on_accepted,
            timeout_callback=self.on_timeout,
            callback=self.on_outcome,
            error_callback=self.on_lost,
            timeout=limit_seconds,
            correlation_id=self.id,
        )

    def on_outcome(self, outcome: Outcome | Any, **_: Any) -> None:
        """The runtime came back, whatever the action did."""
        if not isinstance(outcome, Outcome):  # a thread pool reports what escaped in this way
            self.on_lost(outcome)
            return
        reason = Reason(outcome.reason)
        if self.is_canceling and reason is not Reason.SUCCEEDED:
            reason = Reason.CANCELLED_RUNNING
        elif reason is Reason.CANCELLED_RUNNING:  # by somebody else's signal
            reason = Reason.PROCESS_LOST
        state.task_ready(self, successful=reason is Reason.SUCCEEDED)
        if reason is Reason.SUCCEEDED:
            self.send_event("task-succeeded", result="", runtime=time.time() - self.started_at)
        else:
            self.send_event("task-failed", exception=repr(reason.text), traceback="")
        self.desk.ended(self, reason, outcome.result)

    def on_lost(self, exc_info: Any, **_: Any) -> None:
        """The pool child is gone, or was killed at the pool's own limit."""
        state.task_ready(self)
        error = exc_info.exception
        if self.is_canceling:
            reason = Reason.CANCELLED_RUNNING
        elif isinstance(error, TimeLimitExceeded):
            reason = Reason.RUN_TIMEOUT
        else:
            reason = Reason.PROCESS_LOST
        self.send_event("task-failed", exception=repr(error), traceback="")
        # a child that was killed leaves behind what its action had started
        processes.terminate(str(self.execution_id), self.number, grace_seconds=0)
        result = {"error": reason.text, "message": str(error), "failed_by": "worker"}
        self.desk.ended(self, reason, result)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """The pool reports the same limit through `on_lost`, which does the work."""

    @property
    def started_at(self) -> float:
        return float(self.time_start or time.time())


def call_of(execution: Execution) -> Call:
    """All that a runtime needs to know, so that pool children need no database."""
    return Call(
        execution_id=str(execution.pk),
        attempt=execution.attempt,
        action_ref=execution.action_ref,
        runtime=execution.action.runtime,
        entry_point=execution.action.entry_point,
        parameters=execution.parameters,
        timeout_seconds=executions.run_limit_seconds(execution),
        pack_path=execution.action.pack.path,
        output_limit_bytes=settings.MUSTER.output_limit_bytes,
        cancel_grace_seconds=settings.MUSTER.cancel_grace_seconds,
        options=execution.action.runtime_options,
        limits=execution.action.limits,
    )


class Desk:
    """Claims what was delivered as slots fall free.

    Lives on the consumer's thread, except for what says otherwise. That thread also feeds the
    pool, so it must not wait for the database: the clerks do.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.pool: Any = None
        self.waiting: deque[Attempt] = deque()
        self.claiming = 0
        self.ready: deque[Attempt] = deque()
        """Claimed, and waiting for a slot of the pool: the oldest first."""
        self.claimed: dict[UUID, Attempt] = {}
        """All that is claimed and has not ended: what is ready, and what runs."""
        self._second, self._ended_this_second, self._ended_last_second = 0, 0, 0

    def offer(self, attempt: Attempt) -> None:
        """A message was delivered."""
        attempt.desk = self
        self.waiting.append(attempt)
        self.agent.wake()

    def forget_waiting(self) -> None:
        """The connection is gone, and with it what was not acknowledged: it is delivered again."""
        self.waiting.clear()

    def ended_lately(self) -> int:
        """How many attempts ended here in the last second, about."""
        return max(self._ended_this_second, self._ended_last_second)

    def room(self) -> int:
        """How many more may be claimed: the free slots, and what will start within 200 ms.

        Claiming ahead keeps the pool busy while the next claim is under way. It is bounded by
        what this worker really finishes; should the next actions take longer than the last ones,
        what waits goes back (`take_back`).
        """
        ahead = self.ended_lately() // 5
        return self.agent.capacity + ahead - len(self.claimed) - self.claiming

    def idle_slots(self) -> int:
        """How many slots of the pool have nothing to do."""
        return self.agent.capacity - (len(self.claimed) - len(self.ready))

    def worth_asking(self, room: int) -> bool:
        """Whether to claim now, or rather more at once a little later: a statement for each end
        costs more than the end. While a slot is without work there is nothing to wait for."""
        if len(self.claimed) + self.claiming < 2 * self.agent.capacity:
            return room > 0
        return room > 0 and room >= self.ended_lately() // 10

    def claim_waiting(self) -> None:
        """Take what was granted meanwhile, and let the claimer ask for as many as have room."""
        for batch, granted in self.agent.claimer.take_answers():
            self.claiming -= len(batch)
            if granted is None:
                # not claimed and not acknowledged: nothing has happened yet
                self.waiting.extendleft(reversed(batch))
            else:
                self._take(batch, {execution.pk: execution for execution in granted})
        self._feed()
        room = self.room()
        if self.waiting and self.worth_asking(room) and self.agent.takes_work:
            batch = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
            self.claiming += len(batch)
            self.agent.claimer.ask(batch)

    def _take(self, batch: list[Attempt], granted: dict[UUID, Execution]) -> None:
        for attempt in batch:
            # two copies of one message in a batch: the first takes the claim, the second nothing
            execution = granted.pop(attempt.execution_id, None)
            if execution is None or execution.attempt != attempt.number:
                state.task_ready(attempt)
                continue
            attempt.execution = execution
            attempt.claimed_at = time.monotonic()
            if self.agent.canceller.came_early(attempt.execution_id, attempt.number):
                attempt.is_canceling = True
            self.claimed[attempt.execution_id] = attempt
            self.ready.append(attempt)
        # last: where the broker's connection is gone this raises, and what is claimed must run
        for attempt in batch:
            attempt.acknowledge()

    def _feed(self) -> None:
        """Give the pool no more than it has slots: what it queues could not be taken back."""
        while self.ready and len(self.claimed) - len(self.ready) < self.agent.capacity:
            if self.agent.is_stopping:
                return  # it goes back
            attempt = self.ready.popleft()
            if attempt.is_canceling:
                reason = Reason.CANCELLED_RUNNING
                message = "cancelled before a slot was free"
                result = {"error": reason.text, "message": message, "failed_by": "worker"}
                self.ended(attempt, reason, result)
            else:
                attempt.start(self.pool)

    def take_back(self, *, older_than_seconds: float) -> list[Execution]:
        """Forget what was claimed so long ago and has no slot yet; returns it, to be given back."""
        oldest = time.monotonic() - older_than_seconds
        late = []
        while self.ready and self.ready[0].claimed_at <= oldest:
            attempt = self.ready.popleft()
            self.claimed.pop(attempt.execution_id, None)
            state.task_ready(attempt)
            late.append(attempt.execution)
        return late

    def ended(self, attempt: Attempt, reason: Reason, result: dict[str, Any]) -> None:
        """An attempt is over: record it, and let the next one have its slot. From any thread."""
        self.claimed.pop(attempt.execution_id, None)
        second = int(time.monotonic())
        if second != self._second:
            self._ended_last_second = self._ended_this_second if second == self._second + 1 else 0
            self._second, self._ended_this_second = second, 0
        self._ended_this_second += 1
        self.agent.finisher.put(executions.Ended(attempt.execution, reason, result))
        self.agent.wake()
