"""Tasks and steps: every state, every event; what may happen happens once and leaves a record."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from orchestrator.core.state_machine import Machine, Move, TransitionConflict
from orchestrator.core.state_machine import transition as carry_out
from orchestrator.workflows.models import Step, Task, TransitionRecord
from orchestrator.workflows.states import STEPS, TASKS, StepState, TaskState
from tests import rows
from tests.factories import NOW, make_step, make_task

pytestmark = pytest.mark.usefixtures("database")

LATER = NOW + timedelta(seconds=7)
DUE = LATER + timedelta(minutes=40)

VALUES: dict[tuple[str, str], dict[str, Any]] = {
    ("Task", "wait_for_retry"): {"next_retry_at": DUE, "clock_started_at": DUE},
    ("Step", "wait_for_retry"): {"next_retry_at": DUE, "error": {"message": "ä 'q' %s"}},
    ("Step", "complete"): {"result": {"list": [1, None, 2.5]}},
    ("Step", "enqueue"): {"attempts": 2},
}
"""What the event's caller sets besides."""

CASES = [
    (machine, state, event)
    for machine in (TASKS, STEPS)
    for state in machine.states
    for event in machine.transitions
]
ALLOWED = [(m, s, e) for m, s, e in CASES if m.allows(e, s)]
FORBIDDEN = [(m, s, e) for m, s, e in CASES if not m.allows(e, s)]


def name(value: Any) -> str:
    return model_of(value).__name__ if isinstance(value, Machine) else str(value)


def model_of(machine: Machine) -> Any:
    return Task if machine is TASKS else Step


def make(machine: Machine, state: Any) -> Any:
    return make_task(state) if machine is TASKS else make_step(state)


@pytest.mark.parametrize(("machine", "state", "event"), ALLOWED, ids=name)
def test_allowed_event_moves_the_row_and_leaves_one_record(
    machine: Machine, state: Any, event: str
) -> None:
    rule, values = machine.rule(event), VALUES.get((name(machine), event), {})
    subject, bystander = make(machine, state), make_task(TaskState.COMPLETE)
    before, beside = rows.values(subject), rows.values(bystander)

    moved = carry_out(subject, event, now=LATER, actor="ada", reason="it was time", **values)

    fence = before["fence"] + (1 if rule.new_attempt else 0)
    expected = before | {"state": rule.target, "fence": fence, "next_retry_at": None}
    expected |= dict.fromkeys(machine.entered_columns, LATER)
    expected["ended_at"] = LATER if rule.target in machine.ended else None
    assert rows.values(subject) == expected | values
    assert (moved.state, moved.fence) == (rule.target, fence)
    (record,) = TransitionRecord.objects.values()
    is_task = machine is TASKS
    assert record == {
        "id": record["id"],
        "task_id": subject.pk if is_task else subject.task_id,
        "step_id": None if is_task else subject.pk,
        "event": event,
        "from_state": state,
        "to_state": rule.target,
        "fence": fence,
        "actor": "ada",
        "reason": "it was time",
        "processor": record["processor"],
        "at": LATER,
    }
    assert record["processor"].endswith(f":{os.getpid()}")
    assert rows.values(bystander) == beside


def test_forbidden_event_leaves_the_row_untouched() -> None:
    for machine, state, event in FORBIDDEN:
        subject = make(machine, state)
        before = rows.values(subject)
        with pytest.raises(TransitionConflict):
            carry_out(subject, event, now=LATER, actor="ada")
        for believed in machine.rule(event).sources:
            move = Move(subject.pk, believed, subject.fence)
            assert not model_of(machine).objects.transition_many(
                event, [move], now=LATER, actor="ada"
            )
        assert rows.values(subject) == before, (state, event)
    assert not TransitionRecord.objects.exists()


@pytest.mark.parametrize("machine", [TASKS, STEPS], ids=name)
def test_fence_of_the_caller_is_compared_too(machine: Machine) -> None:
    subject = make(machine, machine.initial)
    event = next(e for e, rule in machine.transitions.items() if machine.initial in rule.sources)
    for fence in (subject.fence + 1, subject.fence - 1):
        move = Move(subject.pk, machine.initial, fence)
        assert not model_of(machine).objects.transition_many(event, [move], now=LATER, actor="late")
    assert rows.values(subject)["state"] == machine.initial


@pytest.mark.parametrize("machine", [TASKS, STEPS], ids=name)
def test_every_state_says_who_moves_it_on_and_is_reached(machine: Machine) -> None:
    rules = machine.transitions.values()
    left = {source for rule in rules for source in rule.sources}
    assert set(machine.who_moves_it_on) == set(machine.states)
    assert left == set(machine.states) - machine.terminal
    assert {rule.target for rule in rules} | {machine.initial} == set(machine.states)
    assert machine.ended - machine.terminal == {machine.states("error")}


@pytest.mark.parametrize("machine", [TASKS, STEPS], ids=name)
def test_database_itself_keeps_terminal_states_final(machine: Machine) -> None:
    for state in machine.terminal:
        subject = make(machine, state)
        others: Any = type(subject)
        for target in set(machine.states) - {state}:
            ended_at = LATER if target in machine.ended else None
            with (
                pytest.raises(IntegrityError, match="terminal state is final"),
                transaction.atomic(),
            ):
                others.objects.filter(pk=subject.pk).update(state=target, ended_at=ended_at)


@pytest.mark.parametrize(
    ("machine", "broken"),
    [
        (TASKS, {"state": "resting"}),
        (TASKS, {"state": "complete"}),
        (TASKS, {"ended_at": NOW}),
        (STEPS, {"state": "resting"}),
        (STEPS, {"state": "complete"}),
        (STEPS, {"ended_at": NOW}),
        (STEPS, {"state": "waiting_for_retry"}),
        (STEPS, {"fence": -1}),
    ],
    ids=name,
)
def test_database_refuses_rows_that_cannot_be(machine: Machine, broken: dict[str, Any]) -> None:
    subject = make(machine, machine.initial)
    others: Any = type(subject)
    with pytest.raises(IntegrityError), transaction.atomic():
        others.objects.filter(pk=subject.pk).update(**broken)


def test_batch_of_steps_is_moved_with_each_its_own_task() -> None:
    steps = [make_step(StepState.PENDING) for _ in range(5)]
    moves = [Move(step.pk, step.state, step.fence, {"attempts": 1}) for step in steps]
    moved = Step.objects.transition_many("enqueue", moves, now=LATER, actor="executor")
    assert moved == {step.pk for step in steps}
    records = TransitionRecord.objects.values_list("step_id", "task_id", "fence")
    assert set(records) == {(step.pk, step.task_id, 1) for step in steps}


def test_several_events_are_one_step_with_a_record_of_each() -> None:
    task = make_task(TaskState.STEPS_IN_PROCESS)
    events = ("evaluate", "enqueue_steps", "process_steps", "wait_for_retry")
    values = {"next_retry_at": DUE, "clock_started_at": DUE}
    move = Move(task.pk, task.state, task.fence, values)
    assert Task.objects.transition_many(events, [move], now=LATER, actor="ada") == {task.pk}
    after = rows.values(task)
    assert (after["state"], after["fence"], after["next_retry_at"]) == ("waiting_for_retry", 4, DUE)
    records = TransitionRecord.objects.values_list("event", "from_state", "to_state", "fence")
    assert list(records) == [
        ("evaluate", "steps_in_process", "evaluating_results", 1),
        ("enqueue_steps", "evaluating_results", "enqueuing_steps", 2),
        ("process_steps", "enqueuing_steps", "steps_in_process", 3),
        ("wait_for_retry", "steps_in_process", "waiting_for_retry", 4),
    ]
    assert not Task.objects.transition_many(events, [move], now=LATER, actor="late")


def test_events_that_do_not_follow_from_each_other_are_refused() -> None:
    task = make_task(TaskState.STEPS_IN_PROCESS)
    move = Move(task.pk, task.state, task.fence)
    with pytest.raises(TransitionConflict, match="process_steps is not possible"):
        Task.objects.transition_many(("evaluate", "process_steps"), [move], now=LATER, actor="ada")
    assert rows.values(task)["state"] == "steps_in_process"
