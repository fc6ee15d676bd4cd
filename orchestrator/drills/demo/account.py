"""The final account: what must hold in the end, counted from the database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from orchestrator.core import topology
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent, Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.drills.demo import files
from orchestrator.drills.demo.play import KILLED, STOPPED, Asked, Play
from orchestrator.drills.supervisor import EXIT_DECLARED_LOST


@dataclass(frozen=True)
class Check:
    """One thing that must hold, with its numbers."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Ends:
    """Executions that ended in the same way, by the number of attempts that they took."""

    status: str
    reason: str
    by_attempt: Mapping[int, int]

    @property
    def total(self) -> int:
        return sum(self.by_attempt.values())


@dataclass(frozen=True)
class Account:
    """The closing figures."""

    ends: list[Ends]
    repeated: Mapping[str, int]
    """The number of attempts that were followed by another, by reason."""
    letters: Mapping[str, int]
    """Dead letters by the queue that they died in."""
    checks: list[Check]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


def draw_up(play: Play) -> Account:
    """Count everything in the database, without trusting what the play saw."""
    repeated = ExecutionEvent.objects.filter(event="retry").order_by().values_list("reason")
    letters = DLQEntry.objects.order_by().values_list("original_queue").annotate(Count("pk"))
    return Account(
        ends=_ends(),
        repeated=dict(repeated.annotate(Count("pk"))),
        letters={_whose(queue): count for queue, count in letters},
        checks=[
            _everything_ended(play.asked),
            _ended_once(play.asked),
            _digests_are_right(play.asked),
            _losses_noticed(play),
            _letters_drained(play.asked),
            _gave_reason(
                play.asked.pinned,
                ExecutionStatus.FAILED,
                Reason.QUEUE_TTL_EXPIRED,
                f"could run on {STOPPED} only",
            ),
            _gave_reason(
                play.asked.sleeps,
                ExecutionStatus.ABANDONED,
                Reason.WORKER_LOST,
                f"ran on {KILLED} and {STOPPED} and may not be repeated",
            ),
            Check(
                f"{STOPPED}, resumed, ended itself with exit {play.stopped_exit_status}",
                play.stopped_exit_status == EXIT_DECLARED_LOST,
            ),
        ],
    )


def _whose(queue: str) -> str:
    worker = Worker.objects.filter(pk=topology.worker_id_of(queue) or 0).first()
    return f"{worker}'s queue {queue}" if worker else queue or "an unknown queue"


def _ends() -> list[Ends]:
    grouped: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    rows = Execution.objects.order_by().values_list("status", "reason", "attempt")
    for status, reason, attempt, count in rows.annotate(Count("pk")):
        grouped[status, reason][attempt] += count
    ends = [Ends(*key, by_attempt) for key, by_attempt in grouped.items()]
    return sorted(ends, key=lambda end: -end.total)


def _everything_ended(asked: Asked) -> Check:
    rows = Execution.objects.in_bulk(asked.all)
    ended = sum(row.status in TERMINAL and bool(row.reason) for row in rows.values())
    text = f"accepted {len(asked.all):,} = ended, with a reason, {ended:,}"
    return Check(text, ended == len(asked.all) == Execution.objects.count())


def _ended_once(asked: Asked) -> Check:
    """Check that the history has exactly one terminal entry for each."""
    ends = Counter(
        ExecutionEvent.objects.filter(to_status__in=TERMINAL).values_list("execution_id", flat=True)
    )
    once = sum(ends[id] == 1 for id in asked.all)
    return Check(f"ended exactly once: {once:,}", once == len(asked.all) == sum(ends.values()))


def _digests_are_right(asked: Asked) -> Check:
    results: dict[Any, Any] = dict(
        Execution.objects.filter(pk__in=asked.files, status=ExecutionStatus.COMPLETED).values_list(
            "pk", "result"
        )
    )
    right = sum(
        (results.get(id) or {}).get("sha256") == files.digest(path)
        for id, path in asked.files.items()
    )
    text = f"SHA-256 digests equal to hashlib's: {right:,} of {len(asked.files):,}"
    return Check(text, right == len(asked.files))


def _losses_noticed(play: Play) -> Check:
    noticed = [
        f"{name} ({loss.how}) after {loss.noticed_after_seconds:.1f} s"
        for name, loss in play.losses.items()
        if loss.noticed_after_seconds is not None
    ]
    return Check(f"lost workers noticed: {', '.join(noticed) or 'none'}", len(noticed) == 2)


def _letters_drained(asked: Asked) -> Check:
    expired = DLQEntry.objects.filter(dlq_reason=DLQEntry.Reason.QUEUE_TTL_EXPIRED)
    died = [entry.x_death[0]["reason"] for entry in expired if entry.x_death]
    settled = set(expired.values_list("subject_id", flat=True))
    text = f"dead letters drained: {len(died)}, each expired in its worker's queue (x-death)"
    return Check(text, died.count("expired") == len(died) > 0 and settled >= set(asked.pinned))


def _gave_reason(ids: list[Any], status: ExecutionStatus, reason: Reason, what: str) -> Check:
    count = Execution.objects.filter(pk__in=ids, status=status, reason=reason).count()
    return Check(f"{status}, {reason}: {count} that {what}", count == len(ids) > 0)
