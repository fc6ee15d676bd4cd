"""The rules of queues find what breaks them, and nothing where they hold."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.chaos import accounting, checker, effects, lanes, queue_rules
from tests.chaos.facts import Accepted, Event, Evidence, Lane, Life
from tests.chaos.stories import E, ended, event, row, truth

LANES = {
    "default": Lane(workers=frozenset({"w1", "w2"})),
    "orders": Lane(max_running=1, workers=frozenset({"w1"}), retry_workers=frozenset({"w2"})),
}


def queued(queue: str = "orders", **changes: Any) -> Evidence:
    """Its one execution is of a queue that only w1 serves, and of its retry lane that w2 serves."""
    known = {
        "accepted": [Accepted(E, 100.0, 160.0, "chaos.once", queue)],
        "rows": [row(queue=queue)],
        "lanes": LANES,
    }
    return truth(**known | changes)


def claimed_by(worker: str) -> list[Event]:
    return [event("schedule"), event("claim", actor=worker), event("complete", actor=worker)]


def beside(*events: Event) -> list[Event]:
    """Events of a second execution."""
    return [dataclasses.replace(each, execution="e2") for each in events]


TWO_ROWS = [row(queue="orders"), dataclasses.replace(row(queue="orders"), execution="e2")]
RETRIED = [event("schedule"), event("claim"), event("retry", reason="process_lost")]
AGAIN = [
    event("schedule", attempt=2, at=102.1),
    event("claim", attempt=2, at=102.2, actor="w2"),
    event("complete", attempt=2, at=103.0, actor="w2"),
]

LIES = {
    "two at once, and the limit is one": (
        queue_rules.limits_hold,
        queued(rows=TWO_ROWS, events=[*truth().events[:2], *beside(event("schedule"))]),
    ),
    "sent to a worker beyond the limit, and not claimed": (
        queue_rules.limits_hold,
        queued(rows=TWO_ROWS, events=[event("schedule"), *beside(event("schedule"))]),
    ),
    "sent beyond the limit while another is canceled": (
        queue_rules.limits_hold,
        queued(
            rows=TWO_ROWS,
            events=[
                *truth().events[:2],
                event("complete", event="request_cancel", to_status="canceling"),
                *beside(event("schedule")),
            ],
        ),
    ),
    "ran on a worker of another queue": (
        queue_rules.queues_are_served_by_theirs,
        queued(events=claimed_by("w2")),
    ),
    "ran on a worker that serves only queues": (
        queue_rules.queues_are_served_by_theirs,
        queued("default", lanes=LANES | {"default": Lane(workers=frozenset({"w2"}))}),
    ),
    "is of a queue that nobody made": (
        queue_rules.queues_are_served_by_theirs,
        queued("nowhere"),
    ),
    "accepted for a queue, and in another": (
        queue_rules.queues_are_accepted,
        queued(rows=[row(queue="default")]),
    ),
}

TRUTHS = {
    "one after the other": queued(
        rows=TWO_ROWS, events=[*truth().events, *beside(*truth().events)]
    ),
    "one more after the first went back": queued(
        rows=TWO_ROWS,
        events=[
            event("schedule"), event("claim"), event("give_back"), *beside(event("schedule")),
        ],
    ),
    "two at once without a limit": queued(
        rows=TWO_ROWS, lanes={"orders": Lane(workers=frozenset({"w1"}))},
        events=[event("schedule"), *beside(event("schedule"))],
    ),
    "pinned to a worker that serves another queue": queued(
        "default",
        rows=[row(pinned="w1")],
        lanes=LANES | {"default": Lane(workers=frozenset({"w2"}))},
    ),
    "in the retry lane after a lost attempt": queued(events=[*RETRIED, *AGAIN]),
    "in the retry lane because its message says so": queued(
        rows=[row(queue="orders", lost_before=1)], events=claimed_by("w2")
    ),
    "no queue is known": queued(lanes={}),
}  # fmt: skip


def test_queue_that_keeps_its_promise_is_no_violation() -> None:
    for story, evidence in TRUTHS.items():
        assert checker.check(evidence, queue_rules.RULES) == [], story


def test_deadline_behind_a_limit_is_short_and_beside_it_is_not() -> None:
    other = [event("schedule", at=100.0), event("claim", at=100.1), event("complete", at=170.0)]
    known: dict[str, Any] = {
        "rows": [
            row(
                queue="orders", status="failed", reason="deadline_passed", ended_at=161.0,
                attempt=0,
            ),
            dataclasses.replace(TWO_ROWS[1], ended_at=170.0),
        ],
        "lines": [],
        "sightings": [],
        "lives": [Life("w1", 10.0)],
    }  # fmt: skip
    rejected = event("reject", reason="deadline_passed", at=161.0)
    full = queued(events=[*beside(*other[:2]), rejected, *beside(other[2])], **known)
    free = queued(events=[rejected], **known | {"rows": known["rows"][:1]})

    assert list(accounting.bad_ends_are_accounted_for(full)) == []
    assert list(accounting.bad_ends_are_accounted_for(free)) != []
    assert effects.at_limit(full, "orders") == [(100.0, 170.0)]


def test_start_lost_before_a_message_came_counts_as_one_of_its_attempts() -> None:
    lost = ended(
        "abandon",
        "worker_lost",
        "abandoned",
        row={"idempotent": True, "max_attempts": 2, "lost_before": 1},
    )
    never = dataclasses.replace(lost, rows=[dataclasses.replace(lost.rows[0], lost_before=0)])

    assert list(accounting.attempts_left_are_used(lost)) == []
    assert list(accounting.attempts_left_are_used(never)) != []


def test_each_worker_of_a_storm_serves_the_default_queue_and_each_queue_has_one() -> None:
    for number in (1, 2, 3):
        served = lanes.served([f"w{n}" for n in range(1, number + 2)], ["letters"])
        everybody = frozenset(f"w{n}" for n in range(1, number + 2))

        assert served["default"].workers == served["letters"].workers == everybody
        assert all(lane.workers for lane in served.values())
        assert served[lanes.LIMITED].max_running == lanes.MAX_RUNNING
        assert served[lanes.RETRIED].retry_workers
