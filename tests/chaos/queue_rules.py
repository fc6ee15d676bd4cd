"""What queues promise: none has more at once than its limit, and only those who serve it run it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.effects import HELD
from tests.chaos.facts import Evidence, Violation


def limits_hold(evidence: Evidence) -> Iterator[Violation]:
    """Workers never had more of a queue than its `max_running`.

    Who starts work of such a queue holds it, counts, and writes: so what was counted as over has
    its number in the history before what starts for it. The history's numbers, and no times, say
    what came first: no clock has to be right.
    """
    held: dict[str, set[str]] = defaultdict(set)
    for event in evidence.events:
        row = evidence.row_of.get(event.execution)
        lane = evidence.lanes.get(row.queue) if row is not None else None
        if row is None or lane is None or lane.max_running is None:
            continue
        theirs = held[row.queue]
        if event.to_status not in HELD:
            theirs.discard(event.execution)
            continue
        is_new = event.execution not in theirs
        theirs.add(event.execution)
        if is_new and len(theirs) > lane.max_running:
            detail = f"{len(theirs)} of {row.queue} at once, and its limit is {lane.max_running}"
            yield Violation("limits_hold", detail, event.execution)


def queues_are_served_by_theirs(evidence: Evidence) -> Iterator[Violation]:
    """Nothing is claimed by a worker that does not serve its queue, nor by one of the retry lane
    alone unless an attempt was lost before. What names its worker runs there, whatever it serves.
    """
    if not evidence.lanes:
        return
    for row in evidence.rows:
        lane = evidence.lanes.get(row.queue)
        if lane is None:
            yield Violation(
                "queues_are_served_by_theirs", f"no {row.queue} is known", row.execution
            )
            continue
        was_lost = row.lost_before > 0
        for event in evidence.history_of.get(row.execution, ()):
            was_lost = was_lost or event.event == "retry"
            if event.event != "claim" or row.pinned is not None or event.actor in lane.workers:
                continue
            if was_lost and event.actor in lane.retry_workers:
                continue
            detail = f"attempt {event.attempt} of {row.queue} claimed by {event.actor}"
            yield Violation("queues_are_served_by_theirs", detail, row.execution)


def queues_are_accepted(evidence: Evidence) -> Iterator[Violation]:
    """What was accepted for a queue is in that queue."""
    for accepted in evidence.accepted:
        row = evidence.row_of.get(accepted.execution)
        if row is not None and row.queue != accepted.queue:
            detail = f"accepted for {accepted.queue}, and in {row.queue}"
            yield Violation("queues_are_accepted", detail, accepted.execution)


RULES = (limits_hold, queues_are_served_by_theirs, queues_are_accepted)
