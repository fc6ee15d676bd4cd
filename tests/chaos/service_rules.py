"""What services say of themselves in their logs, where nothing else would show it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos import effects
from tests.chaos.effects import Effect
from tests.chaos.facts import Evidence, Violation
from tests.chaos.spans import seconds_in

EXCUSES = frozenset(
    {Effect.NO_DATABASE, Effect.NO_BROKER, Effect.NO_QUEUE, Effect.NO_EXECUTOR, Effect.STALLS}
)
AROUND_SECONDS = 0.5
"""A fault is dated when it has been made, and a process may notice it a little earlier."""


def tasks_of_executors_succeed(evidence: Evidence) -> Iterator[Violation]:
    """No task of an executor raises an error that nobody expected, unless something that it needs
    was broken a moment ago.

    Maintenance that fails for good is seen nowhere else: the watchdogs do its work, a little later.
    """
    excused = [
        (fault.at - AROUND_SECONDS, fault.until + effects.RECOVERY_SECONDS)
        for fault in evidence.faults
        if effects.effects_of(fault) & EXCUSES or fault.kind == "failpoint, lie"
    ]
    excused += [(at - AROUND_SECONDS, at + effects.RECOVERY_SECONDS) for at in evidence.clock_steps]
    excused += evidence.database_outages
    for failed in evidence.failed_tasks:
        if not seconds_in(excused, failed.at, failed.at + AROUND_SECONDS):
            detail = f"{failed.task} of {failed.service} at {failed.at:.1f}: {failed.error:.300}"
            yield Violation("tasks_of_executors_succeed", detail)


RULES = (tasks_of_executors_succeed,)
