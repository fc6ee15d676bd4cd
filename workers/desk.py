"""The desk of a worker: messages that wait for a slot, and attempts that run.

    message -> Desk.offer -> Claimer (a batch, one statement) -> a slot runs the action, ack
                                                             -> Finisher (a batch) records the end

The order matters: nothing is started or acknowledged before its claim has committed. A message that
never gets a slot stays unacknowledged, and TTL and `start_by` decide.

Everything is keyed by execution and attempt: the messages of two attempts of one execution may be
here at once, if the first of them was given up.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog
from celery.worker import state

from orchestrator.core import executions
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey
from workers import hiding
from workers.attempts import Attempt, explained, named
from workers.audit import InHand

if TYPE_CHECKING:
    from workers.host import Answer, Host
    from workers.runtimes import Call

log = structlog.get_logger(__name__)

ASKS_AGAIN = frozenset({Reason.TRY_AGAIN, Reason.TASK_REJECTED})
"""Ends by which an action asks to be run again, and may say when."""

BEGIN_WITHIN_SECONDS = 5.0
"""The age of a claim from which an attempt that has not begun goes back: the sweep counts its time
limit from the claim, with a grace of `run_grace_seconds`."""

IN_ITS_SLOT = object()
"""The job of an attempt that a slot has taken by itself: the pool was given none."""


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
        self._taking = threading.Lock()
        """Held while the order of `ready` changes, and idle slots are counted for errands."""
        self._is_probed = self._is_closed = False
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
            self.agent.loop.wake()
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
        """The number of idle slots of the pool. May be called from any thread."""
        ready = len(self.ready)  # first: what is claimed meanwhile may only make it seem less
        return self.agent.capacity + ready - len(self.claimed)

    @property
    def slots_go_on(self) -> bool:
        """True if a slot looks by itself for what is next: a thread can, a process cannot."""
        return self.agent.pool_kind == "thread"

    def begin_probe(self) -> int:
        """Have the slots that become free wait for errands, see `probes.PoolProbe`; returns the
        number of idle ones."""
        with self._taking:
            self._is_probed = True
            return self.idle_slots()

    def end_probe(self) -> None:
        """Let slots go on by themselves again. May be called from any thread."""
        self._is_probed = False

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
        settled: list[Attempt] = []
        for answer in self.agent.claimer.take_answers():
            settled += self._take(answer)
        self._feed()
        # last: without a connection to the broker this raises
        for attempt in settled:
            attempt.acknowledge_message()
        room = self.room()
        if self.waiting and self.worth_asking(room) and self.agent.loop.takes_work:
            batch = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
            self.claiming += len(batch)
            self.in_hand.take(attempt.key for attempt in batch)
            self.agent.claimer.ask(batch)

    def _take(self, answer: Answer) -> list[Attempt]:
        """Take the answer to a claim; returns those whose messages can be acknowledged."""
        self.claiming -= len(answer.batch)
        if answer.granted is None:
            # not claimed, as far as is known, and not acknowledged
            self.in_hand.let_go(attempt.key for attempt in answer.batch)
            self.waiting.extendleft(reversed(answer.batch))
            return []
        granted = {each.key: each for each in answer.granted}
        settled = []
        for attempt in answer.batch:
            # two copies of one message in a batch: only the first gets the claim
            execution = granted.pop(attempt.key, None)
            if execution is not None:
                self._make_ready(attempt, execution, answer)
            else:
                self.in_hand.let_go([attempt.key])
                if attempt.key in answer.held:
                    self.held.append(attempt)
                    continue
                state.task_ready(attempt)
            settled.append(attempt)
        return settled

    def _make_ready(self, attempt: Attempt, execution: Execution, answer: Answer) -> None:
        attempt.execution = execution
        attempt.contents = answer.contents[execution.pk]
        attempt.masker = answer.maskers[execution.pk]
        # the loop may have been kept since: while the broker is away it waits for a connection
        attempt.claimed_at = answer.asked_at or time.monotonic()
        assert execution.started_at is not None
        left = execution.deadline_at - execution.started_at
        attempt.begin_by = attempt.claimed_at + min(BEGIN_WITHIN_SECONDS, left.total_seconds())
        if self.agent.canceller.came_early(attempt.key):
            attempt.is_canceling = True
        self.claimed[attempt.key] = attempt
        self.ready.append(attempt)

    def _feed(self) -> None:
        """Start no more than the pool has slots: what the pool queues cannot be taken back. What is
        of a paused queue, or late, goes back."""
        paused: list[Execution] = []
        late: list[Execution] = []
        while (attempt := self._next_ready()) is not None:
            if self.agent.pauses.holds(attempt.execution) and not attempt.is_canceling:
                paused.append(self._forgotten(attempt))
            elif attempt.is_canceling:
                reason = Reason.CANCELLED_RUNNING
                self.ended(attempt, reason, explained(reason, "cancelled before a slot was free"))
            elif attempt.is_late:
                late.append(self._forgotten(attempt))
            elif why := attempt.contents.refusal:
                self.ended(attempt, Reason.KEY_REFUSED, explained(Reason.KEY_REFUSED, why))
            elif (pack_path := self.agent.releases.path_for(attempt.execution)) is None:
                self.agent.releases.bring(attempt)  # it keeps its slot meanwhile
            else:
                self._start(attempt, pack_path)
        if paused:
            self.agent.returns.give_back_soon(paused, Reason.QUEUE_PAUSED)
        if late:
            self.agent.returns.give_back_soon(late, Reason.GIVEN_BACK)

    def _forgotten(self, attempt: Attempt) -> Execution:
        """The execution of an attempt that is not begun here, for who gives it back."""
        self.claimed.pop(attempt.key, None)
        state.task_ready(attempt)
        return attempt.execution

    def _next_ready(self) -> Attempt | None:
        """Take the attempt that has waited the longest, if there is a slot for it."""
        with self._taking:
            return self.ready.popleft() if self._may_start() else None

    def _may_start(self) -> bool:
        # of a worker that stops, they go back
        is_over = self._is_closed or self.agent.is_stopping
        return bool(self.ready) and self.idle_slots() > 0 and not is_over

    def _start(self, attempt: Attempt, pack_path: str) -> None:
        try:
            attempt.start(self.pool, pack_path=pack_path)
        except Exception as error:  # noqa: BLE001 - it ends, not all of the worker
            self._cannot_start(attempt, error)

    def _cannot_start(self, attempt: Attempt, error: Exception) -> None:
        log.error("attempt not started", execution_id=str(attempt.execution_id), exc_info=error)
        reason, why = Reason.PROCESS_LOST, f"The worker could not start it: {named(error)}"
        self.ended(attempt, reason, explained(reason, why))

    # --- in a slot's thread

    def serve(self, handed: list[tuple[Attempt, Call]]) -> None:
        """Run an attempt in this thread of the pool, and then what is ready, one after the other:
        no other thread is woken between two of them. `handed`: the one; it is taken out, because
        the pool keeps what it was given."""
        next_one: tuple[Attempt, Call] | None = handed.pop()
        while next_one is not None:
            attempt, call = next_one
            attempt.run_here(call)
            next_one = self._begin_next()
            self._wake_for_more(is_served=next_one is not None)

    def _begin_next(self) -> tuple[Attempt, Call] | None:
        """Begin the attempt that has waited the longest, if a slot is free and nothing about it has
        to be seen to by the loop."""
        while (taken := self._take_plain()) is not None:
            attempt, pack_path = taken
            try:
                return attempt, attempt.begin(pack_path=pack_path)
            except Exception as error:  # noqa: BLE001 - as in the loop
                self._cannot_start(attempt, error)
        return None

    def _take_plain(self) -> tuple[Attempt, str] | None:
        with self._taking:
            if self._is_probed or not self._may_start():
                return None
            attempt = self.ready[0]
            pack_path = self.agent.releases.path_for(attempt.execution)
            if (
                pack_path is None
                or attempt.is_canceling
                or attempt.is_late
                or attempt.contents.refusal
                or self.agent.pauses.holds(attempt.execution)
            ):
                return None
            attempt.job = IN_ITS_SLOT  # or it would count as not begun
            return self.ready.popleft(), pack_path

    def _wake_for_more(self, *, is_served: bool) -> None:
        """Let the loop look for work after an end, if there is any that it can do something about.
        `is_served`: the slot has what is next."""
        is_left = bool(self.ready) and not is_served
        # what is offered from now on finds the slot free by itself
        if is_left or (self.waiting and self.worth_asking(self.room())):
            self.agent.loop.wake()

    def go_on(self, attempts: Sequence[Attempt]) -> None:
        """Start attempts whose releases are here by now, before those that came after them. While
        the worker stops they go back, and this may be any thread."""
        for attempt in reversed(attempts):
            if attempt.key in self.claimed:
                attempt.claimed_at, attempt.begin_by = time.monotonic(), math.inf
                with self._taking:  # a slot may be looking at the first one
                    self.ready.appendleft(attempt)
        if not self.agent.is_stopping:
            self.claim_waiting()

    def take_unsent(self) -> None:
        """Begin nothing more, as the loop has ended, for whatever reason; and let attempts wait for
        a slot again that it would have brought to a process or thread. Only in its thread."""
        with self._taking:
            self._is_closed = True
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
        with self._taking:
            while self.ready and self.ready[0].claimed_at <= oldest:
                late.append(self._forgotten(self.ready.popleft()))
        return late

    def take_unbegun(self) -> list[Execution]:
        """Forget all attempts that the pool was never given, when it is down: they wait for a
        release, or were to go on in a turn of the loop that did not come. As `take_back`."""
        unbegun = []
        for attempt in list(self.claimed.values()):
            if attempt.job is None and self.claimed.pop(attempt.key, None) is not None:
                state.task_ready(attempt)
                unbegun.append(attempt.execution)
        return unbegun

    def ended(self, attempt: Attempt, reason: Reason, result: dict[str, Any]) -> None:
        """Record the end of an attempt without its secrets, and free its slot. May be called from
        any thread."""
        if reason is Reason.TASK_REJECTED:
            self.agent.pauses.note(attempt.execution)  # before its slot is free for the next
        elif reason is Reason.PACK_UNAVAILABLE:
            self.agent.code.is_lacking = True
        try:
            masked = _without_secrets(attempt, reason, result)
        except Exception as error:  # noqa: BLE001 - its text, or traceback, might quote a secret
            kind = type(error).__name__
            log.error("cannot mask result", execution_id=str(attempt.execution_id), error=kind)
            if reason is Reason.SUCCEEDED:
                reason = Reason.ACTION_FAILED
            masked = explained(reason, f"The worker could not mask its result: {kind}.")
        self._count_end()
        end = executions.Ended(attempt.execution, reason, masked, *attempt.ran_ns)
        self.agent.finisher.put(end)
        # afterwards, so that who stops this worker finds it either here or there
        self.claimed.pop(attempt.key, None)
        state.task_ready(attempt)
        self._free_slot(attempt)

    def not_begun(self, attempt: Attempt) -> None:
        """Give back an attempt that came to its slot too late, and free the slot. May be called
        from any thread."""
        self.agent.returns.give_back_soon([self._forgotten(attempt)], Reason.GIVEN_BACK)
        self._free_slot(attempt)

    def _free_slot(self, attempt: Attempt) -> None:
        # the pool's job has the attempt's methods: together they would stay until somebody looks
        # for garbage. Not before: what is claimed and has no job counts as not begun
        attempt.job = None
        if not attempt.slot_goes_on:
            self._wake_for_more(is_served=False)
        hiding.end(attempt.masker)

    def _count_end(self) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._ended_last_second = self._ended_this_second if second == self._second + 1 else 0
            self._second, self._ended_this_second = second, 0
        self._ended_this_second += 1


def _without_secrets(attempt: Attempt, reason: Reason, result: dict[str, Any]) -> dict[str, Any]:
    masked: dict[str, Any] = attempt.masker.value(result)
    if reason in ASKS_AGAIN and executions.RETRY_AFTER in result:
        # a number, made by this worker, that the database counts with
        masked = {**masked, executions.RETRY_AFTER: result[executions.RETRY_AFTER]}
    return masked
