"""Tables of a run, for a terminal and for docs/reliability.md."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.chaos import accounting
from tests.chaos.facts import TERMINAL, Evidence, Fault
from tests.chaos.outcome import Outcome

LOST = frozenset(
    {
        "worker_stopped",
        "worker_lost",
        "process_lost",
        "queue_ttl_expired",
        "scheduled_timeout",
        "run_deadline_passed",
        "dispatch_failed",
        "unroutable",
        "message_rejected",
        "cancel_unconfirmed",
    }
)
"""Reasons that only a fault gives."""

NOTICE_WITHIN_SECONDS = 30.0


def table(outcome: Outcome) -> str:
    """Each kind of fault: how often, what it cost, how soon that was noticed and work went on."""
    found = outcome.evidence
    kinds: dict[str, list[Fault]] = defaultdict(list)
    for fault in found.faults:
        kinds[fault.kind].append(fault)
    rows = []
    claims = sorted(event.at for event in found.events if event.event == "claim")
    noticed = _noticed(found)
    for kind, faults in sorted(kinds.items()):
        notices = [seconds for fault in faults for seconds in noticed[fault]]
        goes_on = [
            claims[index] - fault.at
            for fault in faults
            if (index := bisect_right(claims, fault.at)) < len(claims)
        ]
        rows.append((kind, str(len(faults)), str(len(notices)), _spread(notices), _spread(goes_on)))
    heading = (
        "fault",
        "times",
        "attempts it ended",
        "seconds to notice",
        "seconds to the next claim",
    )
    return markdown([heading, *rows])


def section(outcome: Outcome) -> str:
    """The table with what stands above it."""
    found = outcome.evidence
    statuses = Counter(row.status for row in found.rows)
    late = [row.ended_at - row.deadline_at for row in found.rows if row.ended_at is not None]
    told = ", ".join(f"{statuses[status]:,} {status}" for status in sorted(TERMINAL))
    kinds = len({fault.kind for fault in found.faults})
    tasks = Counter(task.state for task in found.tasks)
    ends = ", ".join(f"{number:,} {state}" for state, number in tasks.most_common()) or "none"
    servers = {"servers": "PostgreSQL, RabbitMQ, Redis", "embedded": "SQLite, embedded broker"}
    return (
        f"**{servers[outcome.backend]}, {outcome.profile}**, seed {outcome.seed}: "
        f"{len(found.accepted):,} executions and {len(found.tasks):,} tasks of "
        f"{len(found.steps):,} steps accepted, {len(found.faults)} faults of {kinds} kinds in "
        f"{outcome.seconds:.0f} s. "
        f"**Violations: {len(outcome.violations)}.** They ended as {told}. "
        f"The latest end came {max(late):.1f} s after its deadline; all was over "
        f"{outcome.quiet_seconds:.1f} s after the last fault. {outcome.gave_up} times a worker "
        f"found that it was believed to be dead, and ended itself. The tasks ended as {ends}; "
        f"{outcome.repairs} of their steps had failed for good and were reset."
        f"\n\n{table(outcome)}\n\n{reasons(outcome)}"
    )


def reasons(outcome: Outcome) -> str:
    """Why attempts ended badly, how often, and how often the faults would account for it."""
    found = outcome.evidence
    caps = accounting.caps_of(found)
    ends: dict[str, list[accounting.Ending]] = defaultdict(list)
    for ending in accounting.endings(found):
        ends[ending.event.reason].append(ending)
    rows = [
        (
            f"`{reason}`",
            f"{sum(ending.event.event == 'retry' for ending in endings):,}",
            f"{sum(ending.event.event != 'retry' for ending in endings):,}",
            f"{caps.get(reason, 0):,}",
        )
        for reason, endings in sorted(ends.items())
    ]
    return markdown([("reason", "attempts tried again", "executions ended", "cap"), *rows])


def write(path: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- /name -->`."""
    before, opening, rest = path.read_text().partition(f"<!-- {name} -->")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    if not closing:
        raise ValueError(f"{path} has no place for {name}")
    path.write_text(f"{before}{opening}\n\n{text}\n\n{closing}{after}")


def markdown(rows: Sequence[Sequence[str]]) -> str:
    heading, *others = rows
    lines = [heading, ["---"] * len(heading), *others]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _noticed(found: Evidence) -> dict[Fault, list[float]]:
    """Seconds from a fault to each attempt that Muster ended as lost. An attempt counts for the
    latest fault before its end that could have been the cause."""
    at = sorted(found.faults, key=lambda fault: fault.at)
    begins = [fault.at for fault in at]
    noticed: dict[Fault, list[float]] = defaultdict(list)
    for events in found.history_of.values():
        for event in events:
            if event.reason in LOST:
                since = max((e.at for e in events if e.at < event.at), default=event.at)
                index = bisect_right(begins, since)  # the first fault after its last good step
                while index < len(at) and at[index].kind in ("kill beat", "kill api"):
                    index += 1
                if index < len(at) and 0 <= event.at - at[index].at < NOTICE_WITHIN_SECONDS:
                    noticed[at[index]].append(event.at - at[index].at)
    return noticed


def _spread(seconds: Iterable[float]) -> str:
    found = sorted(seconds)
    if not found:
        return "-"
    return f"{statistics.median(found):.1f} (at most {found[-1]:.1f})"
