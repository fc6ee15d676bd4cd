"""At each heartbeat: what the database says has started here, against what has.

The rule that it holds: nothing is claimed on a living worker and never started. A claim may have
committed without its answer: the connection broke, or the server carried it out after the worker
had given up on it. Its row is `running` on this life of this worker, and nobody here knows of it.
Asked again, the claim is refused, for it is running. So each heartbeat asks for all that has
started here; what is in nobody's hand at two heartbeats in a row goes back, uncounted.

Why what is in somebody's hand is never given back:

- `InHand` has an attempt from before its claim is asked for until after its end is recorded, its
  claim refused, or what was claimed given back. In between it is in several queues and threads,
  and never in none of them. It is counted, as there may be two messages of one attempt: that the
  claim of the second is refused must not hide that the first one runs.
- The database is asked first, and the hand is looked into afterwards. What is claimed in between
  is not in the answer. What ended in between is in the answer and in no hand any more: but it is
  not in the next answer, as no row comes back to `running` at the same attempt.
- An end on its way, or held back as another transaction has the row, is in the hand until it is
  recorded. An end of which only the answer was lost is recorded again, and refused, before that.
- A claim that is asked for again, after its answer was lost, is in the hand for that moment. It is
  refused, and the two heartbeats are counted from then on.

That the message of a claim without an answer is still unacknowledged, and comes again, is no harm:
given back, its execution is dispatched with a new attempt, and the fence refuses the old one.

From the same rows: cancels whose message was lost, and time limits that the clock of the database
has left behind. `run_deadline_at` was set by that clock. Has it been set forward since, every
execution would be given up at once, though its worker knows how long it runs: so the worker, which
counts for itself, moves what is off by more than a few seconds. `deadline_at` is a promise by the
database's clock and stays, and with it the latest that `run_deadline_at` may be.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from orchestrator.core import executions
from orchestrator.core.models import Execution
from orchestrator.core.models.claiming import AttemptKey
from orchestrator.core.states import ExecutionStatus

if TYPE_CHECKING:
    from workers.host import Host

log = structlog.get_logger(__name__)

CLOCK_TOLERANCE = timedelta(seconds=5)
"""A claim takes a moment, and so do two clocks that count the same."""


class InHand:
    """The attempts that this worker knows of. From any thread."""

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

    def __contains__(self, attempt: AttemptKey) -> bool:
        with self._lock:
            return attempt in self._counts


class Audit:
    """What the heartbeat compares. On the heartbeat's thread, and after it on the one that leaves.

    Raises what the database does.
    """

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self._unknown: set[AttemptKey] = set()
        """What was in nobody's hand at the last heartbeat."""

    @property
    def _life(self) -> dict[str, int]:
        return {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}

    def compare(self, *, now: datetime) -> None:
        """For each heartbeat; `now` by the database's clock."""
        started = executions.started(**self._life)
        unknown = self._in_no_hand(started)
        if twice := unknown & self._unknown:
            self._disown(twice, now)
        self._unknown = unknown
        for execution in started:
            if execution.status == ExecutionStatus.CANCELING:
                self.agent.canceller.cancel(execution.key)
        self._correct_time_limits(started, now)

    def settle(self, *, now: datetime) -> None:
        """Once, by a worker that is about to leave: it asks for nothing any more, so what is in
        nobody's hand now will be in none."""
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
            found = execution.run_deadline_at
            if (
                due is not None
                and found is not None
                and execution.status == ExecutionStatus.RUNNING
                and abs(due - found) > CLOCK_TOLERANCE
            ):
                corrected[execution.key] = due
        if corrected:
            n = executions.set_run_deadlines(corrected, **self._life)
            log.warning("the clock of the database has jumped: time limits moved", n=n)

    def _due(self, key: AttemptKey, now: datetime) -> datetime | None:
        """When what runs here is to be given up, by this worker's count of how long it runs."""
        attempt = self.agent.desk.claimed.get(key)
        if attempt is None:
            return None
        limit_seconds = executions.run_limit_seconds(attempt.execution)
        left_seconds = limit_seconds - (time.monotonic() - attempt.claimed_at)
        grace = timedelta(seconds=settings.MUSTER.run_grace_seconds)
        over_at = now + timedelta(seconds=left_seconds)
        deadline_at: datetime = attempt.execution.deadline_at
        return min(over_at, deadline_at) + grace
