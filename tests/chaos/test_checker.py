"""The checker finds each kind of lie, and nothing where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.core.states import TRANSITIONS
from tests.chaos import (
    accounting,
    checker,
    service_rules,
    test_accounting,
    test_policy_rules,
    test_queue_rules,
    test_task_rules,
)
from tests.chaos.facts import Evidence, FailedTask, Fault, Line, Sighting
from tests.chaos.stories import RESULT, E, ended, event, fault, row, truth


def test_true_run_has_no_violation() -> None:
    assert checker.check(truth()) == []


def test_run_of_two_attempts_has_no_violation() -> None:
    evidence = truth(
        rows=[row(idempotent=True, attempt=2)],
        faults=[fault("kill pool child", 101.9, 0, "w1")],
        events=[
            event("schedule"),
            event("claim"),
            event("retry", reason="process_lost"),
            event("schedule", attempt=2, at=102.1),
            event("claim", attempt=2, at=102.2),
            event("complete", attempt=2, at=103.0),
        ],
        lines=[
            Line("start", E, 1, 7, 100.3),
            Line("start", E, 2, 8, 102.3),
            Line("end", E, 2, 8, 102.9, RESULT),
        ],
    )

    assert checker.check(evidence) == []


DEFERRED = truth(
    rows=[row(attempt=2)],
    events=[
        event("schedule"),
        event("claim"),
        event("defer", reason="task_rejected"),
        event("schedule", attempt=2, at=102.1),
        event("claim", attempt=2, at=102.2),
        event("complete", attempt=2, at=103.0),
    ],
    lines=[
        Line("defer", E, 1, 7, 100.3),
        Line("start", E, 2, 8, 102.3),
        Line("end", E, 2, 8, 102.9, RESULT),
    ],
)
"""It could not begin at first, and must not be started twice."""


def test_run_that_was_deferred_has_no_violation() -> None:
    assert checker.check(DEFERRED) == []


TICK = FailedTask(100.5, "executor", "muster.check_timeouts", "the connection is closed")

LIES: dict[str, tuple[Callable[..., Any], Evidence]] = {
    **test_accounting.LIES,
    **test_task_rules.LIES,
    **test_queue_rules.LIES,
    **test_policy_rules.LIES,
    "a task of maintenance fails while all is well": (
        service_rules.tasks_of_executors_succeed,
        truth(failed_tasks=[TICK]),
    ),
    "a task fails, and there was garbage": (
        service_rules.tasks_of_executors_succeed,
        truth(failed_tasks=[TICK], faults=[fault("garbage on every queue", 100.0, 0.0, "")]),
    ),
    "a task still fails long after the database was away": (
        service_rules.tasks_of_executors_succeed,
        truth(failed_tasks=[TICK], faults=[fault("restart database", 80.0, 5.0, "w1")]),
    ),
    "accepted and gone": (checker.accepted_is_over, truth(rows=[], events=[], lines=[])),
    "accepted and still open": (
        checker.accepted_is_over,
        truth(rows=[row(status="running", ended_at=None)], events=truth().events[:2]),
    ),
    "terminal without a time": (checker.accepted_is_over, truth(rows=[row(ended_at=None)])),
    "unknown to the client, and open": (
        checker.accepted_is_over,
        truth(accepted=[], rows=[row(status="requested", ended_at=None)]),
    ),
    "two terminal events": (
        checker.ends_once,
        truth(events=[*truth().events, event("complete", at=102.0)]),
    ),
    "terminal without an event": (checker.ends_once, truth(events=truth().events[:2])),
    "terminal in another way than its event": (
        checker.ends_once,
        truth(rows=[row(status="failed")]),
    ),
    "21 s after the deadline": (checker.ends_in_time, truth(rows=[row(ended_at=181.0)])),
    "21 s after it was written down, past its deadline": (
        checker.ends_in_time,
        truth(rows=[row(ended_at=221.0, created_at=200.0)]),
    ),
    "the row's deadline was moved": (
        checker.ends_in_time,
        truth(rows=[row(ended_at=181.0, deadline_at=200.0)]),
    ),
    "late, and the database was away for less": (
        checker.ends_in_time,
        truth(rows=[row(ended_at=184.0)], database_outages=[(150.0, 163.0)]),
    ),
    "no reason": (checker.ends_with_a_reason, truth(rows=[row(reason="")])),
    "deferred without its word": (
        checker.deferral_is_the_actions_word,
        dataclasses.replace(DEFERRED, lines=DEFERRED.lines[1:]),
    ),
    "deferred after it had begun": (
        checker.deferral_is_the_actions_word,
        dataclasses.replace(DEFERRED, lines=[Line("start", E, 1, 7, 100.2), *DEFERRED.lines]),
    ),
    "ended for a deferral": (
        checker.deferral_is_the_actions_word,
        ended("fail", "task_rejected", "failed"),
    ),
    "deferred for another reason": (
        checker.deferral_is_the_actions_word,
        dataclasses.replace(
            DEFERRED, events=[event("schedule"), event("claim"), event("defer", reason="moved")]
        ),
    ),
    "deferral counted as an attempt": (
        accounting.attempts_left_are_used,
        dataclasses.replace(
            DEFERRED,
            rows=[row(attempt=2, max_attempts=2, status="failed", reason="scheduled_timeout")],
            events=[
                *DEFERRED.events[:4],
                event("expire", attempt=2, at=103.0, reason="scheduled_timeout"),
            ],
        ),
    ),
    "one attempt started twice": (
        checker.attempt_starts_once,
        truth(lines=[*truth().lines, Line("start", E, 1, 8, 100.4)]),
    ),
    "started without a claim": (
        checker.attempt_starts_once,
        truth(events=[truth().events[0], truth().events[2]]),
    ),
    "not idempotent, started in two attempts": (
        checker.not_idempotent_starts_once,
        truth(lines=[*truth().lines, Line("start", E, 2, 8, 105.0)]),
    ),
    "history after the end": (
        checker.nothing_follows_the_end,
        truth(events=[*truth().events, event("claim", at=102.0)]),
    ),
    "the row changed after the end": (
        checker.nothing_follows_the_end,
        truth(terminal_digests={E: "another"}),
    ),
    "completed and never ran": (checker.completed_did_run, truth(lines=[])),
    "completed by an earlier attempt": (
        checker.completed_did_run,
        truth(rows=[row(attempt=2)]),
    ),
    "process outlives its execution": (
        checker.processes_end,
        truth(sightings=[Sighting(E, 1, 7, 100.5), Sighting(E, 1, 7, 116.5)]),
    ),
    "process outlives its attempt": (
        checker.processes_end,
        truth(
            events=[
                *truth().events[:2],
                event("claim", event="retry", from_status="running", to_status="requested"),
            ],
            sightings=[Sighting(E, 1, 7, 120.0)],
        ),
    ),
    "message left over": (checker.queues_are_empty, truth(queues={"worker.1.executions": 1})),
    "dead letter left over": (checker.queues_are_empty, truth(queues={"muster.dlx.queue": 1})),
    "history with a gap": (
        checker.history_is_a_path,
        truth(events=[truth().events[0], truth().events[2]]),
    ),
    "event that leads elsewhere": (
        checker.history_is_a_path,
        truth(events=[event("schedule"), event("claim"), event("complete", to_status="failed")]),
    ),
    "event that nobody knows": (
        checker.history_is_a_path,
        truth(events=[event("schedule", event="teleport"), *truth().events[1:]]),
    ),
    "row that is not where its history leads": (
        checker.history_is_a_path,
        truth(rows=[row(status="failed")]),
    ),
    "attempt that grows by two": (
        checker.attempts_grow_by_one,
        truth(
            rows=[row(attempt=2)],
            events=[dataclasses.replace(event, attempt=2) for event in truth().events],
        ),
    ),
    "attempt that grows without a dispatch": (
        checker.attempts_grow_by_one,
        truth(events=[*truth().events[:2], event("complete", attempt=2)]),
    ),
    "seen to be open long after its end is dated": (
        checker.ends_in_time,
        truth(last_open={E: 181.0}),
    ),
    "another row was held, and this one is late": (
        checker.ends_in_time,
        truth(
            rows=[row(ended_at=184.0)],
            faults=[Fault("hold row locks", 160.0, 180.0, executions=frozenset({"another"}))],
        ),
    ),
    "result of another attempt": (
        checker.results_are_the_actions,
        truth(rows=[row(result={"mark": "of somebody else"})]),
    ),
    "no result, and its action returned one": (
        checker.results_are_the_actions,
        truth(rows=[row(result=None)]),
    ),
    "end before its dispatch": (
        checker.time_goes_forward,
        truth(events=[event("schedule", at=105.0), event("claim", at=105.1), event("complete")]),
    ),
    "end before its acceptance": (
        checker.time_goes_forward,
        truth(events=[event("schedule", at=90.0), event("claim"), event("complete")]),
    ),
    "end before that of its action": (
        checker.time_goes_forward,
        truth(
            lines=[
                Line("start", E, 1, 7, 100.3),
                Line("end", E, 1, 7, 104.0, RESULT),
            ]
        ),
    ),
    "old time, and the lock was held at another time": (
        checker.time_goes_forward,
        truth(
            events=[event("schedule", at=105.0), event("claim", at=105.1), event("complete")],
            faults=[fault("hold row locks", 120.0, 9.0)],
        ),
    ),
    "internal error": (
        checker.answers_are_honest,
        truth(wrong_answers=["POST /executions: 500"]),
    ),
    "rule whose answer is not over": (
        checker.events_are_answered_once,
        truth(unanswered={"events that no rule was asked about": 0, "enforcements": 1}),
    ),
    "neighbour that was disturbed": (
        checker.neighbours_are_undisturbed,
        truth(neighbours={"n1": "completed", "n2": "scheduled"}),
    ),
    "neighbour of whom nothing is heard": (
        checker.neighbours_are_undisturbed,
        truth(faults=[fault("second installation", 100.0, 1.0)]),
    ),
    "row at another attempt than its history": (
        checker.attempts_grow_by_one,
        truth(rows=[row(attempt=2)]),
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
        truth(rows=[row(ended_at=179.9)]),
        truth(rows=[row(ended_at=184.0)], database_outages=[(161.0, 166.0)]),
        truth(rows=[row(ended_at=201.0, created_at=200.0)]),
        truth(sightings=[Sighting(E, 1, 7, 115.5)]),
        truth(
            rows=[row(ended_at=184.0)],
            faults=[Fault("hold row locks", 160.0, 170.0, executions=frozenset({E}))],
        ),
        truth(rows=[row(result={"result": RESULT, "stdout": ""})]),
        truth(
            events=[event("schedule", at=105.0), event("claim", at=105.1), event("complete")],
            faults=[fault("hold row locks", 100.0, 6.0)],
        ),
        truth(
            events=[event("schedule", at=105.0), event("claim", at=105.1), event("complete")],
            clock_steps=[104.0],
        ),
        truth(neighbours={"n1": "completed"}),
        truth(failed_tasks=[TICK], faults=[fault("restart database", 90.0, 5.0, "w1")]),
    ],
    ids=[
        "at most 20 s late",
        "late while the database was away",
        "written down past its deadline, and over at once",
        "process that ends in time",
        "late while its own row was held",
        "result of a command",
        "old time of who waited for a lock",
        "old time around a step of the clock",
        "neighbour that did its work",
        "task that fails just after the database was away",
    ],
)
def test_what_is_within_the_promise_is_no_violation(evidence: Evidence) -> None:
    assert checker.check(evidence) == []


def test_timeline_tells_all_sides_in_order() -> None:
    evidence = truth(faults=[fault("kill api", 99.0)])
    told = checker.timeline(evidence, E).splitlines()

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
