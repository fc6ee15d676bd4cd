"""The checker finds each kind of lie, and nothing where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.state_machine import TRANSITIONS
from tests.chaos import checker
from tests.chaos.checker import Accepted, Event, Evidence, Fault, Line, Row, Sighting

E = "e1"

STORY = {
    "schedule": ("requested", "scheduled", 1, 100.1),
    "claim": ("scheduled", "running", 1, 100.2),
    "complete": ("running", "completed", 1, 101.0),
}


def _event(like: str, **changes: Any) -> Event:
    from_status, to_status, attempt, at = STORY[like]
    told = Event(E, like, from_status, to_status, attempt, "somebody", "", at)
    return dataclasses.replace(told, **changes)


def _truth(**changes: Any) -> Evidence:
    """A run in which one execution was accepted, ran once and completed."""
    evidence = Evidence(
        accepted=[Accepted(E, at=100.0, deadline_at=110.0, action="chaos.once")],
        rows=[_row()],
        events=[_event("schedule"), _event("claim"), _event("complete")],
        lines=[Line("start", E, 1, 7, 100.3), Line("end", E, 1, 7, 100.9)],
        sightings=[Sighting(E, 1, 7, 100.5)],
        queues={"muster.dlx.queue": 0, "muster.maintenance.queue": 3},
        faults=[Fault("kill worker", 99.0, 100.0, "w1")],
        terminal_digests={E: "same"},
    )
    return dataclasses.replace(evidence, **changes)


def _row(**changes: Any) -> Row:
    row = Row(E, "chaos.once", False, "completed", "succeeded", 1, 110.0, 101.0, "same")
    return dataclasses.replace(row, **changes)


def test_true_run_has_no_violation() -> None:
    assert checker.check(_truth()) == []


def test_run_of_two_attempts_has_no_violation() -> None:
    evidence = _truth(
        rows=[_row(idempotent=True, attempt=2)],
        events=[
            _event("schedule"),
            _event("claim"),
            _event("claim", event="retry", from_status="running", to_status="requested", at=102.0),
            _event("schedule", attempt=2, at=102.1),
            _event("claim", attempt=2, at=102.2),
            _event("complete", attempt=2, at=103.0),
        ],
        lines=[
            Line("start", E, 1, 7, 100.3),
            Line("start", E, 2, 8, 102.3),
            Line("end", E, 2, 8, 102.9),
        ],
    )

    assert checker.check(evidence) == []


LIES: dict[str, tuple[Callable[..., Any], Evidence]] = {
    "accepted and gone": (checker.accepted_is_over, _truth(rows=[], events=[], lines=[])),
    "accepted and still open": (
        checker.accepted_is_over,
        _truth(rows=[_row(status="running", ended_at=None)], events=_truth().events[:2]),
    ),
    "terminal without a time": (checker.accepted_is_over, _truth(rows=[_row(ended_at=None)])),
    "unknown to the client, and open": (
        checker.accepted_is_over,
        _truth(accepted=[], rows=[_row(status="requested", ended_at=None)]),
    ),
    "two terminal events": (
        checker.ends_once,
        _truth(events=[*_truth().events, _event("complete", at=102.0)]),
    ),
    "terminal without an event": (checker.ends_once, _truth(events=_truth().events[:2])),
    "terminal in another way than its event": (
        checker.ends_once,
        _truth(rows=[_row(status="failed")]),
    ),
    "21 s after the deadline": (checker.ends_in_time, _truth(rows=[_row(ended_at=131.0)])),
    "the row's deadline was moved": (
        checker.ends_in_time,
        _truth(rows=[_row(ended_at=131.0, deadline_at=150.0)]),
    ),
    "late, and the database was away for less": (
        checker.ends_in_time,
        _truth(rows=[_row(ended_at=134.0)], database_outages=[(100.0, 113.0)]),
    ),
    "no reason": (checker.ends_with_a_reason, _truth(rows=[_row(reason="")])),
    "one attempt started twice": (
        checker.attempt_starts_once,
        _truth(lines=[*_truth().lines, Line("start", E, 1, 8, 100.4)]),
    ),
    "started without a claim": (
        checker.attempt_starts_once,
        _truth(events=[_truth().events[0], _truth().events[2]]),
    ),
    "not idempotent, started in two attempts": (
        checker.not_idempotent_starts_once,
        _truth(lines=[*_truth().lines, Line("start", E, 2, 8, 105.0)]),
    ),
    "history after the end": (
        checker.nothing_follows_the_end,
        _truth(events=[*_truth().events, _event("claim", at=102.0)]),
    ),
    "the row changed after the end": (
        checker.nothing_follows_the_end,
        _truth(terminal_digests={E: "another"}),
    ),
    "completed and never ran": (checker.completed_did_run, _truth(lines=[])),
    "completed by an earlier attempt": (
        checker.completed_did_run,
        _truth(rows=[_row(attempt=2)]),
    ),
    "process outlives its execution": (
        checker.processes_end,
        _truth(sightings=[Sighting(E, 1, 7, 100.5), Sighting(E, 1, 7, 116.5)]),
    ),
    "process outlives its attempt": (
        checker.processes_end,
        _truth(
            events=[
                *_truth().events[:2],
                _event("claim", event="retry", from_status="running", to_status="requested"),
            ],
            sightings=[Sighting(E, 1, 7, 120.0)],
        ),
    ),
    "message left over": (checker.queues_are_empty, _truth(queues={"worker.1.executions": 1})),
    "dead letter left over": (checker.queues_are_empty, _truth(queues={"muster.dlx.queue": 1})),
    "history with a gap": (
        checker.history_is_a_path,
        _truth(events=[_truth().events[0], _truth().events[2]]),
    ),
    "event that leads elsewhere": (
        checker.history_is_a_path,
        _truth(
            events=[_event("schedule"), _event("claim"), _event("complete", to_status="failed")]
        ),
    ),
    "event that nobody knows": (
        checker.history_is_a_path,
        _truth(events=[_event("schedule", event="teleport"), *_truth().events[1:]]),
    ),
    "row that is not where its history leads": (
        checker.history_is_a_path,
        _truth(rows=[_row(status="failed")]),
    ),
    "attempt that grows by two": (
        checker.attempts_grow_by_one,
        _truth(
            rows=[_row(attempt=2)],
            events=[dataclasses.replace(event, attempt=2) for event in _truth().events],
        ),
    ),
    "attempt that grows without a dispatch": (
        checker.attempts_grow_by_one,
        _truth(events=[*_truth().events[:2], _event("complete", attempt=2)]),
    ),
    "row at another attempt than its history": (
        checker.attempts_grow_by_one,
        _truth(rows=[_row(attempt=2)]),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_lie_is_found(lie: str) -> None:
    rule, evidence = LIES[lie]

    assert {violation.rule for violation in rule(evidence)} == {rule.__name__}
    assert rule.__name__ in {violation.rule for violation in checker.check(evidence)}


def test_every_rule_has_a_lie_that_it_finds() -> None:
    assert {rule for rule, _ in LIES.values()} == set(checker.RULES)


@pytest.mark.parametrize(
    "evidence",
    [
        _truth(rows=[_row(ended_at=129.9)]),
        _truth(rows=[_row(ended_at=134.0)], database_outages=[(111.0, 116.0)]),
        _truth(sightings=[Sighting(E, 1, 7, 115.5)]),
    ],
    ids=["at most 20 s late", "late while the database was away", "process that ends in time"],
)
def test_what_is_within_the_promise_is_no_violation(evidence: Evidence) -> None:
    assert checker.check(evidence) == []


def test_timeline_tells_all_sides_in_order() -> None:
    told = checker.timeline(_truth(), E).splitlines()

    sides = [line.split()[1] for line in told]
    assert sides[:4] == ["FAULT", "client", "history", "history"]
    assert {"action", "process", "row"} <= set(sides)
    assert [line.split()[0] for line in told] == sorted(line.split()[0] for line in told)


def test_checker_and_state_machine_have_the_same_table() -> None:
    table = {
        event: (frozenset(map(str, row.sources)), str(row.target))
        for event, row in TRANSITIONS.items()
    }
    assert table == checker.POSSIBLE
