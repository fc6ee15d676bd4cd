"""What a run has come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.chaos import checker
from tests.chaos.facts import TERMINAL, Evidence, Violation
from tests.chaos.failpoints import Failpoint
from tests.chaos.profiles import QUICKLY

SHOWN_OF_A_RULE = 5


@dataclass
class Outcome:
    """A run, and what the checker says of it."""

    seed: int
    backend: str
    evidence: Evidence
    violations: list[Violation]
    seconds: float
    quiet_seconds: float
    """From the last fault and the last submission until all was over."""
    unanswered: int
    cancelled: int
    ended_by_themselves: Counter[str] = field(default_factory=Counter)
    """Services that ended although nobody killed them, workers that gave up not counted."""
    unreached: Sequence[Failpoint] = ()
    """Failpoints that nothing came to."""
    gave_up: int = 0
    """Workers that saw that they were believed to be dead, and ended themselves."""
    profile: str = QUICKLY.name
    repairs: int = 0
    """Failed steps that the operator reset."""


def _told(reasons: Iterable[str]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in Counter(reasons).most_common())


def summary(outcome: Outcome) -> str:
    """A few lines for a terminal."""
    found = outcome.evidence
    statuses = Counter(row.status for row in found.rows)
    retries = sum(event.event == "retry" for event in found.events)
    tasks = Counter(task.state for task in found.tasks)
    lines = [
        f"seed {outcome.seed}, {outcome.backend}: {len(found.accepted)} accepted, "
        f"{len(found.faults)} faults in {outcome.seconds:.0f} s, "
        f"quiet after {outcome.quiet_seconds:.1f} s",
        "  " + ", ".join(f"{statuses[status]} {status}" for status in sorted(TERMINAL)),
        f"  for {_told(row.reason for row in found.rows)}",
        f"  {retries} retries, {outcome.cancelled} cancels, "
        f"{outcome.unanswered} requests unanswered, {outcome.gave_up} workers gave up",
        f"  {len(found.tasks)} tasks of {len(found.steps)} steps: {dict(tasks)}, "
        f"{outcome.repairs} repairs",
        f"  ended by themselves: {dict(outcome.ended_by_themselves) or 'none'}",
        *(f"  never reached: {point}" for point in outcome.unreached),
        f"  {len(outcome.violations)} violations "
        f"{dict(Counter(violation.rule for violation in outcome.violations))}",
    ]
    shown = Counter[str]()
    for violation in outcome.violations:
        shown[violation.rule] += 1
        if shown[violation.rule] > SHOWN_OF_A_RULE:
            continue
        lines.append(str(violation))
        if violation.execution is not None:
            lines.append(checker.timeline(found, violation.execution))
    return "\n".join(lines)
