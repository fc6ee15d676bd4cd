"""Attempts of a worker: messages that wait for a slot, and attempts that run.

    message -> Desk.offer -> Claimer (a batch, one statement) -> ack -> pool child runs the action
                                                             -> Finisher (a batch) records the end

The order matters: nothing is started or acknowledged before its claim has committed. A message that
never gets a slot stays unacknowledged, and TTL and `start_by` decide.

Everything is keyed by execution and attempt: the messages of two attempts of one execution may be
here at once, if the first of them was given up.
"""

from __future__ import annotations

import copy
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.worker import state
from celery.worker.request import Request
from django.conf import settings

from orchestrator.core import executions, isolation, packs, publisher, tracing
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey
from workers import child, hiding, processes
from workers.audit import InHand
from workers.runtimes import Call, Outcome

if TYPE_CHECKING:
    from workers.host import Answer, Host

log = structlog.get_logger(__name__)

STOPPED = "The worker was stopped, and killed what still ran when its time to stop was up."
LONGEST_MESSAGE = 500

BACKSTOP_SECONDS = 5.0
"""The pool's hard limit comes this long after the runtime's own, in case that one fails."""


class Attempt(Request):
    """One attempt that a dispatch message names, from its delivery to the end of the attempt.

    A Celery request, so that `celery inspect active`, events and Flower see it as a task: one for
    each attempt, also where a message lists many.
    """

    execution_id: UUID
    number: int
    """The attempt's number: the fence."""
    execution: Execution
    """As claimed; set by the claim, never reloaded."""
    contents: executions.Contents
    """What its action gets, with its keys opened. Kept here alone, and never stored."""
    masker = hiding.NOTHING
    """Masks its secrets in all that comes of it."""
    claimed_at: float
    """By `time.monotonic`."""
    release_wanted_at = 0.0
    """Since when it has waited for its release; 0 if it has not. By `time.monotonic`."""
    desk: Desk
    _on_ack: Callable[..., None]
    _kwargs: dict[str, Any]
    _kwargsrepr: str
    job: Any = None
    """What the pool has given for it, once it has a slot."""
    is_canceling = False
    is_stopped = False
    """Its worker has to stop, and kills it."""
    ran_ns = (0, 0)
    """When its action began and ended; zeros if it did not begin, or nothing is traced."""

    @property
    def key(self) -> AttemptKey:
        return self.execution_id, self.number

    def divided(self, keys: Sequence[AttemptKey]) -> list[Attempt]:
        """A request for each of these attempts, which the message of this one names; this one is
        the first."""
        acknowledge = _LastOne(self._on_ack, len(keys))
        attempts = [self, *(copy.copy(self) for _ in keys[1:])]
        for attempt, key in zip(attempts, keys, strict=True):
            attempt.execution_id, attempt.number = key
            attempt._on_ack = acknowledge
            if len(keys) > 1:
                attempt.id = publisher.name_of(key)
                attempt._kwargs = publisher.about(key)
                attempt._kwargsrepr = repr(attempt._kwargs)
        return attempts

    def start(self, pool: Any, *, pack_path: str) -> None:
        """Hand the claimed execution to a pool child. `pack_path`: its pack, as its release has
        it."""
        self.masker = hiding.begin(self.contents.secrets)
        call = call_of(self.execution, self.contents, pack_path=pack_path)
        limit_seconds = call.timeout_seconds + call.cancel_grace_seconds + BACKSTOP_SECONDS
        self.job = pool.apply_async(
            child.run,
            args=(call,),
            accept_callback=self.on_accepted,
            timeout_callback=self.on_timeout,
            callback=self.on_outcome,
            error_callback=self.on_lost,
            timeout=limit_seconds,
            correlation_id=self.id,
        )

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """Note that a process or a thread begins. Whatever is wrong with Celery's part of that, the
        action runs: it is claimed, and a thread pool would neither run it nor report the error."""
        try:
            super().on_accepted(pid, time_accepted)
        except Exception:
            log.exception("start not announced", execution_id=str(self.execution_id))

    def on_outcome(self, outcome: Outcome | Any, **_: Any) -> None:
        """Handle the return of the runtime, for any end of the action. Raises nothing: a thread
        pool would not report it, and the slot would be gone."""
        if not isinstance(outcome, Outcome):  # how a thread pool reports an exception
            self.on_lost(outcome)
            return
        try:
            reason, result = self._as_known_here(Reason(outcome.reason), outcome.result)
            self._announce(reason)
        except Exception as error:
            log.exception("outcome not understood", execution_id=str(self.execution_id))
            reason = Reason.PROCESS_LOST
            result = _explained(reason, _how_it_died(error))
        self._note_run()
        self.desk.ended(self, reason, result)

    def _announce(self, reason: Reason) -> None:
        """Tell Celery, and who listens to its events."""
        state.task_ready(self, successful=reason is Reason.SUCCEEDED)
        if reason is Reason.SUCCEEDED:
            self.send_event("task-succeeded", result="", runtime=time.time() - self.started_at)
        elif reason is Reason.TASK_REJECTED:
            self.send_event("task-rejected", requeue=True)
        else:
            self.send_event("task-failed", exception=repr(reason.text), traceback="")

    def _as_known_here(
        self, reason: Reason, result: dict[str, Any]
    ) -> tuple[Reason, dict[str, Any]]:
        """The reason and the result, corrected if the worker knows better why the action failed."""
        if reason is Reason.SUCCEEDED:
            return reason, result
        if self.is_canceling:
            return Reason.CANCELLED_RUNNING, result
        if self.is_stopped and reason not in (Reason.RUN_TIMEOUT, Reason.TASK_REJECTED):
            return Reason.WORKER_STOPPED, result | _explained(Reason.WORKER_STOPPED, STOPPED)
        if reason is Reason.CANCELLED_RUNNING:
            message = "The action was interrupted by a signal that the worker did not send."
            return Reason.PROCESS_LOST, result | _explained(Reason.PROCESS_LOST, message)
        return reason, result

    def on_lost(self, exc_info: Any, **_: Any) -> None:
        """Handle the loss of the pool child, or its end at the pool's own limit."""
        state.task_ready(self)
        # the pool wraps the error in one whose text is a traceback
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        reason, message = self._why_lost(error)
        self.send_event("task-failed", exception=type(error).__name__, traceback="")
        self._end_what_is_left()
        self._note_run()
        self.desk.ended(self, reason, _explained(reason, message))

    def _end_what_is_left(self) -> None:
        """End the processes of the action, which a killed child leaves behind, and the child's warm
        ones. Those of this process belong to all of its threads."""
        try:
            processes.terminate(str(self.execution_id), self.number, grace_seconds=0)
            if self.worker_pid is not None and int(self.worker_pid) != os.getpid():
                processes.kill_warm(str(self.worker_pid))
        except OSError:
            log.exception("could not look for processes", execution_id=str(self.execution_id))

    def _why_lost(self, error: BaseException) -> tuple[Reason, str]:
        if self.is_canceling:
            return Reason.CANCELLED_RUNNING, "It did not stop in time, and its process was killed."
        if isinstance(error, TimeLimitExceeded):
            return Reason.RUN_TIMEOUT, "It ran past its time limit, and its process was killed."
        if self.is_stopped:
            return Reason.WORKER_STOPPED, STOPPED
        return Reason.PROCESS_LOST, _how_it_died(error)

    def stopped(self) -> executions.Ended:
        """Its end, for a worker that can stop it only by ending itself."""
        reason = Reason.WORKER_STOPPED
        return executions.Ended(self.execution, reason, _explained(reason, STOPPED))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Do nothing: the pool reports the same limit through `on_lost`, which does the work."""

    @property
    def started_at(self) -> float:
        return float(self.time_start or time.time())

    def _note_run(self) -> None:
        """Note when its action began, and that it ended now, if that is traced."""
        ended_ns = tracing.clock_ns()
        if ended_ns and self.time_start:
            self.ran_ns = int(self.started_at * 1e9), ended_ns


class _LastOne:
    """Acknowledges a message when each of its attempts has been acknowledged."""

    def __init__(self, acknowledge: Callable[..., None], attempts: int) -> None:
        self.acknowledge, self.left = acknowledge, attempts

    def __call__(self, *about: Any) -> None:
        self.left -= 1
        if not self.left:
            self.acknowledge(*about)


def _explained(reason: Reason, message: str) -> dict[str, Any]:
    return {"error": reason.text, "message": message, "failed_by": "worker"}


def _how_it_died(error: BaseException) -> str:
    """One sentence on a process that the pool lost."""
    if isinstance(error, WorkerLostError):
        if match := re.search(r"exited prematurely: (.+?)\.? Job", str(error)):
            return f"The pool process that ran it ended: {match[1]}."
        return "The pool process that ran it ended before the action did."
    first_line = next(iter(str(error).splitlines()), "")[:LONGEST_MESSAGE]
    return f"The worker failed while it ran the action: {type(error).__name__}: {first_line}"


def call_of(execution: Execution, contents: executions.Contents, *, pack_path: str) -> Call:
    """Collect all that a runtime needs, so that pool children need no database and no keys."""
    return Call(
        execution_id=str(execution.pk),
        attempt=execution.attempt,
        retries=execution.retry_count,
        action_ref=execution.action_ref,
        runtime=execution.action.runtime,
        entry_point=execution.action.entry_point,
        parameters=contents.parameters,
        timeout_seconds=executions.run_limit_seconds(execution),
        pack_path=pack_path,
        output_limit_bytes=settings.MUSTER.output_limit_bytes,
        cancel_grace_seconds=executions.stop_limit_seconds(execution),
        options=execution.action.runtime_options,
        limits=execution.action.limits,
        secrets=contents.secrets,
        token=contents.token,
        isolation=isolation.strongest(execution.action.isolation, isolation.least()),
        defers_on_75=packs.defers_on_75(
            execution.action.runtime,
            execution.action.runtime_options,
            idempotent=execution.action.idempotent,
        ),
    )


class Desk:
    """Claims delivered messages as slots become free.

    Runs on the consumer's thread, except where a method says otherwise. That thread also feeds the
    pool, so it must not wait for the database: claimer and finisher do.
    """

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.pool: Any = None
        self.waiting: deque[Attempt] = deque()
        self.held: list[Attempt] = []
        """Could not be claimed, as another transaction holds their rows; asked for again."""
        self.claiming = 0
        self.ready: deque[Attempt] = deque()
        """Claimed, and waiting for a slot of the pool: the oldest first."""
        self.claimed: dict[AttemptKey, Attempt] = {}
        """All attempts that are claimed and have not ended: ready ones, and running ones."""
        self.in_hand = InHand()
        self._taking_back = threading.Lock()
        self._second, self._ended_this_second, self._ended_last_second = 0, 0, 0

    def offer(self, attempts: Sequence[Attempt]) -> None:
        """Take the attempts of a delivered message.

        An idle worker claims at once. A busy one waits for the next turn of the loop, and claims
        all that was delivered by then.
        """
        for attempt in attempts:
            attempt.desk = self
        self.waiting.extend(attempts)
        if self.claimed or self.claiming:
            self.agent.wake()
        else:
            self.claim_waiting()

    def forget_waiting(self) -> None:
        """Forget unacknowledged messages after the connection is lost: they are delivered again."""
        self.waiting.clear()
        self.held.clear()

    def ask_again_for_held(self) -> None:
        """Ask again, after a pause, for rows that another transaction held."""
        self.waiting.extend(self.held)
        self.held.clear()

    def ended_last_second(self) -> int:
        """The approximate number of attempts that ended here in the last second."""
        return max(self._ended_this_second, self._ended_last_second)

    def room(self) -> int:
        """The number of attempts to claim: free slots, plus those that will start within 200 ms.

        Claiming early keeps the pool busy while the next claim is under way. It is bounded by what
        this worker really finishes; if the next actions take longer than the last ones, what waits
        goes back (`take_back`).
        """
        ahead = self.ended_last_second() // 5
        return self.agent.capacity + ahead - len(self.claimed) - self.claiming

    def idle_slots(self) -> int:
        """The number of idle slots of the pool."""
        return self.agent.capacity - (len(self.claimed) - len(self.ready))

    def has_nothing(self) -> bool:
        """Return True if nothing runs here, and nothing waits to. May be called from any thread."""
        return not (self.claimed or self.claiming or self.waiting)

    def worth_asking(self, room: int) -> bool:
        """Return True if it is worth claiming now, rather than more at once a little later: a
        statement for each end costs more than the end. While a slot is idle there is no reason to
        wait."""
        if len(self.claimed) + self.claiming < 2 * self.agent.capacity:
            return room > 0
        return room > 0 and room >= self.ended_last_second() // 10

    def claim_waiting(self) -> None:
        """Take the granted claims, and let the claimer ask for as many more as have room."""
        try:
            for answer in self.agent.claimer.take_answers():
                self._take(answer)
        finally:
            self._feed()  # also if the broker has gone: what is claimed runs
        room = self.room()
        if self.waiting and self.worth_asking(room) and self.agent.takes_work:
            batch = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
            self.claiming += len(batch)
            self.in_hand.take(attempt.key for attempt in batch)
            self.agent.claimer.ask(batch)

    def _take(self, answer: Answer) -> None:
        self.claiming -= len(answer.batch)
        if answer.granted is None:
            # not claimed, as far as is known, and not acknowledged
            self.in_hand.let_go(attempt.key for attempt in answer.batch)
            self.waiting.extendleft(reversed(answer.batch))
            return
        granted = {each.key: each for each in answer.granted}
        settled = []
        for attempt in answer.batch:
            # two copies of one message in a batch: only the first gets the claim
            execution = granted.pop(attempt.key, None)
            if execution is not None:
                self._make_ready(attempt, execution, answer.contents[execution.pk])
            else:
                self.in_hand.let_go([attempt.key])
                if attempt.key in answer.held:
                    self.held.append(attempt)
                    continue
                state.task_ready(attempt)
            settled.append(attempt)
        # last: without a connection to the broker this raises
        for attempt in settled:
            attempt.acknowledge()

    def _make_ready(
        self, attempt: Attempt, execution: Execution, contents: executions.Contents
    ) -> None:
        attempt.execution, attempt.contents = execution, contents
        attempt.claimed_at = time.monotonic()
        if self.agent.canceller.came_early(attempt.key):
            attempt.is_canceling = True
        self.claimed[attempt.key] = attempt
        self.ready.append(attempt)

    def _feed(self) -> None:
        """Start no more than the pool has slots: what the pool queues cannot be taken back. What is
        of a paused queue goes back."""
        paused: list[Execution] = []
        while self.ready and len(self.claimed) - len(self.ready) < self.agent.capacity:
            if self.agent.is_stopping:
                break  # they go back
            attempt = self.ready.popleft()
            if self.agent.pauses.holds(attempt.execution) and not attempt.is_canceling:
                self.claimed.pop(attempt.key, None)
                state.task_ready(attempt)
                paused.append(attempt.execution)
            elif attempt.is_canceling:
                reason = Reason.CANCELLED_RUNNING
                self.ended(attempt, reason, _explained(reason, "cancelled before a slot was free"))
            elif why := attempt.contents.refusal:
                self.ended(attempt, Reason.KEY_REFUSED, _explained(Reason.KEY_REFUSED, why))
            elif (pack_path := self.agent.releases.path_for(attempt.execution)) is None:
                self.agent.releases.bring(attempt)  # it keeps its slot meanwhile
            else:
                attempt.start(self.pool, pack_path=pack_path)
        if paused:
            self.agent.give_back_paused(paused)

    def go_on(self, attempts: Sequence[Attempt]) -> None:
        """Start attempts whose releases are here by now, before those that came after them."""
        for attempt in reversed(attempts):
            if attempt.key in self.claimed:
                attempt.claimed_at = time.monotonic()
                self.ready.appendleft(attempt)
        self.claim_waiting()

    def take_unsent(self) -> None:
        """Let attempts wait for a slot again that no process or thread of the pool has got, when
        the loop that would have brought them there has ended. Only in the thread of that loop."""
        for attempt in list(self.claimed.values()):
            future = getattr(attempt.job, "f", None)  # of a pool of threads
            if future is not None and future.cancel():
                self.ready.append(attempt)
        jobs = getattr(self.pool, "_pool", None)
        unsent = getattr(jobs, "outbound_buffer", None)  # no pool of threads has one
        if unsent:
            ids = {job.correlation_id for job in unsent}
            for job in unsent:
                job.discard()  # or the pool would wait for its end
            unsent.clear()
            self.ready.extend(each for each in list(self.claimed.values()) if each.id in ids)

    def take_back(self, *, older_than_seconds: float) -> list[Execution]:
        """Forget attempts that were claimed at least this long ago and have no slot yet; returns
        them. The caller gives them back, and only then removes them from `in_hand`. May be called
        from any thread while the worker stops."""
        oldest = time.monotonic() - older_than_seconds
        late = []
        with self._taking_back:
            while self.ready and self.ready[0].claimed_at <= oldest:
                attempt = self.ready.popleft()
                self.claimed.pop(attempt.key, None)
                state.task_ready(attempt)
                late.append(attempt.execution)
        return late

    def ended(self, attempt: Attempt, reason: Reason, result: dict[str, Any]) -> None:
        """Record the end of an attempt without its secrets, and free its slot. May be called from
        any thread."""
        if reason is Reason.TASK_REJECTED:
            self.agent.pauses.note(attempt.execution)  # before its slot is free for the next
        result = attempt.masker.value(result)
        hiding.end(attempt.masker)
        second = int(time.monotonic())
        if second != self._second:
            self._ended_last_second = self._ended_this_second if second == self._second + 1 else 0
            self._second, self._ended_this_second = second, 0
        self._ended_this_second += 1
        if reason is Reason.PACK_UNAVAILABLE:
            self.agent.code.is_lacking = True
        end = executions.Ended(attempt.execution, reason, result, *attempt.ran_ns)
        self.agent.finisher.put(end)
        # the pool's job has the attempt's methods: together they would stay until somebody looks
        # for garbage
        attempt.job = None
        # last, so that who stops this worker finds it either here or there
        self.claimed.pop(attempt.key, None)
        self.agent.wake()
