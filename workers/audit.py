"""The audit at each heartbeat: attempts started here according to the database, and in fact.

Its rule: no attempt is claimed on a living worker and never started. A claim may have committed
although its answer was lost: the connection broke, or the server executed it after the worker had
given up on it. Its row is `running` on this life of this worker, but the worker does not know it.
If the worker asks again, the claim is refused, as the attempt is running. So each heartbeat reads
all attempts that have started here; one that is not in hand at two heartbeats in a row goes back,
and no policy counts that.

An attempt that is in hand is never given back:

- `InHand` has an attempt from before its claim is requested until after its end is recorded, its
  claim is refused, or it is given back. In between it passes through several queues and threads
  without a gap. Attempts are counted, as there may be two messages of one attempt: the refused
  claim of the second must not hide that the first one runs.
- The database is read first, and `InHand` afterwards. An attempt claimed in between is not in the
  answer. One that ended in between is in the answer and no longer in hand: but it is not in the
  next answer, as no row comes back to `running` at the same attempt.
- An end that is being written, or waits because another transaction holds the row, is in hand until
  it is recorded. If only the answer was lost, it is written again, and refused, before that.
- A claim that is requested again, after its answer was lost, is in hand for that moment. It is
  refused, and the two heartbeats count from then on.

The message of a claim without an answer is still unacknowledged, and comes again. That does no
harm: its execution was given back and is dispatched with a new attempt, and the fence refuses the
old one.

The same rows show cancels whose message was lost, and time limits that are wrong because the
database's clock was set. `run_deadline_at` comes from that clock. If it was set forward since,
every execution would be given up at once, although its worker knows how long it has run: so the
worker, which counts the seconds itself, moves limits that are off by more than a few seconds.
`deadline_at` is a promise by the database's clock and stays, and with it the latest possible
`run_deadline_at`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from orchestrator.core import executions
from orchestrator.core.models import Execution
from orchestrator.core.states import AttemptKey, ExecutionStatus

if TYPE_CHECKING:
    from workers.host import Host

log = structlog.get_logger(__name__)

CLOCK_TOLERANCE = timedelta(seconds=5)
"""A claim takes a moment, and two clocks never agree exactly."""


class InHand:
    """The attempts that this worker knows. May be used from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[AttemptKey] = Counter()
        self._lock = threading.Lock()

    def take(self, attempts: Iterable[AttemptKey]) -> None:
        with self._lock:
            self._counts.update(attempts)

    def let_go(self, attempts: Iterable[AttemptKey]) -> None:
        with self._lock:
            for attempt in attempts:
                self._counts[attempt] -= 1
                if self._counts[attempt] <= 0:
                    del self._counts[attempt]

    def only_in(self, attempts: Collection[AttemptKey]) -> set[AttemptKey]:
        """Those of these attempts, which are in hand, that are in hand nowhere else."""
        times = Counter(attempts)
        with self._lock:
            return {attempt for attempt in times if self._counts[attempt] <= times[attempt]}

    def keys(self) -> list[AttemptKey]:
        with self._lock:
            return list(self._counts)

    def __contains__(self, attempt: AttemptKey) -> bool:
        with self._lock:
            return attempt in self._counts


class Audit:
    """The comparison at each heartbeat. Runs on the heartbeat's thread, and finally on the one that
    leaves.

    Raises database errors.
    """

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self._unknown: set[AttemptKey] = set()
        """The attempts that were not in hand at the last heartbeat."""

    @property
    def _life(self) -> dict[str, int]:
        return {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}

    def compare(self, *, now: datetime) -> None:
        """Compare once, at each heartbeat; `now` by the database's clock."""
        started = executions.started(**self._life)
        unknown = self._in_no_hand(started)
        if twice := unknown & self._unknown:
            self._disown(twice, now)
        self._unknown = unknown
        for execution in started:
            if execution.status == ExecutionStatus.CANCELING:
                self.agent.canceller.cancel(execution.key)
        self._correct_time_limits(started, now)

    def look_for_cancels(self) -> None:
        """Stop what its row says is to be stopped, and what is over: a message of that may be lost,
        or there was none."""
        claimed = list(self.agent.desk.claimed)  # before the rows are read
        in_hand = self.agent.desk.in_hand.keys()
        for key in executions.to_stop(in_hand, claimed=claimed, **self._life):
            # what has ended here since is over, too, and nothing is left to stop
            if key not in claimed or key in self.agent.desk.claimed:
                self.agent.canceller.cancel(key)

    def settle(self, *, now: datetime) -> None:
        """Compare for the last time, before the worker leaves: it claims nothing any more, so what
        is not in hand now never will be."""
        if unknown := self._in_no_hand(executions.started(**self._life)):
            self._disown(unknown, now)

    def _in_no_hand(self, started: Sequence[Execution]) -> set[AttemptKey]:
        in_hand = self.agent.desk.in_hand
        return {execution.key for execution in started if execution.key not in in_hand}

    def _disown(self, attempts: set[AttemptKey], now: datetime) -> None:
        returned = executions.disown(attempts, **self._life, now=now, actor=self.agent.name)
        log.warning("claimed here and never heard of: given back", n=returned)

    def _correct_time_limits(self, started: Sequence[Execution], now: datetime) -> None:
        corrected = {}
        for execution in started:
            due = self._due(execution.key, now)
            current = execution.run_deadline_at
            if (
                due is not None
                and current is not None
                and execution.status == ExecutionStatus.RUNNING
                and abs(due - current) > CLOCK_TOLERANCE
            ):
                corrected[execution.key] = due
        if corrected:
            n = executions.set_run_deadlines(corrected, **self._life)
            log.warning("the clock of the database has jumped: time limits moved", n=n)

    def _due(self, key: AttemptKey, now: datetime) -> datetime | None:
        """The time at which an attempt is to be given up, by this worker's count of its running
        time."""
        attempt = self.agent.desk.claimed.get(key)
        if attempt is None:
            return None
        limit_seconds = executions.run_limit_seconds(attempt.execution)
        left_seconds = limit_seconds - (time.monotonic() - attempt.claimed_at)
        grace = timedelta(seconds=settings.MUSTER.run_grace_seconds)
        over_at = now + timedelta(seconds=left_seconds)
        deadline_at: datetime = attempt.execution.deadline_at
        return min(over_at, deadline_at) + grace
