"""What policies promise: no more at once than they say, and nothing is left when all is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.effects import HELD
from tests.chaos.facts import Evidence, Violation


def policies_hold(evidence: Evidence) -> Iterator[Violation]:
    """Workers never had more of an action than its policy of concurrency lets start.

    As with the limits of queues: who starts something of it holds its bucket, counts, and writes,
    so the numbers of the history say what came first.
    """
    held: dict[str, set[str]] = defaultdict(set)
    for event in evidence.events:
        row = evidence.row_of.get(event.execution)
        limit = evidence.limits.get(row.action) if row is not None else None
        if row is None or limit is None:
            continue
        theirs = held[row.action]
        if event.to_status not in HELD:
            theirs.discard(event.execution)
            continue
        is_new = event.execution not in theirs
        theirs.add(event.execution)
        if is_new and len(theirs) > limit:
            detail = f"{len(theirs)} of {row.action} at once, and its policy says {limit}"
            yield Violation("policies_hold", detail, event.execution)


def nothing_is_left_of_policies(evidence: Evidence) -> Iterator[Violation]:
    """Maintenance has removed what policies counted, and their lines are empty."""
    for what, number in evidence.policy_rows.items():
        if number:
            yield Violation("nothing_is_left_of_policies", f"{number} {what}")


RULES = (policies_hold, nothing_is_left_of_policies)
