"""The checker finds each kind of lie about tasks and steps, and nothing where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.workflows.states import STEPS, TASKS
from tests.chaos import checker, task_rules
from tests.chaos.facts import Accepted, Evidence, Record, StepRow, TaskRow
from tests.chaos.stories import E, row, truth

T = "t1"
OTHER = "e2"

TASK_WAY = (
    ("initialize", "initializing"),
    ("enqueue_steps", "enqueuing_steps"),
    ("process_steps", "steps_in_process"),
    ("evaluate", "evaluating_results"),
    ("enqueue_steps", "enqueuing_steps"),
    ("process_steps", "steps_in_process"),
    ("evaluate", "evaluating_results"),
    ("complete", "complete"),
)
STEP_WAY = (
    ("enqueue", "enqueued"),
    ("start", "in_progress"),
    ("hand_in", "enqueued_for_orchestration"),
    ("complete", "complete"),
)


def _records(way: Any, step: str | None, *times: float) -> list[Record]:
    records, state = [], "pending"
    for (name, target), at in zip(way, times, strict=True):
        records.append(Record(T, step, name, state, target, at))
        state = target
    return records


def _truth(**changes: Any) -> Evidence:
    """A task of two steps, one after the other; both ran once and completed."""
    one = truth()
    shifted = [dataclasses.replace(e, execution=OTHER, at=e.at + 2) for e in one.events]
    lines = [dataclasses.replace(e, execution=OTHER, at=e.at + 2) for e in one.lines]
    evidence = dataclasses.replace(
        one,
        accepted=[*one.accepted, Accepted(OTHER, 102.0, 160.0, "chaos.once")],
        rows=[*one.rows, row(execution=OTHER, created_at=102.0, ended_at=103.0)],
        events=[*one.events, *shifted],
        lines=[*one.lines, *lines],
        accepted_tasks=[T],
        tasks=[TaskRow(T, "chain", "complete", 104.0)],
        steps=[_step(), _step(step="s2", execution=OTHER, parents=frozenset({"s1"}))],
        records=_history(),
        tries=[("s1", E), ("s2", OTHER)],
    )
    return dataclasses.replace(evidence, **changes)


def _step(**changes: Any) -> StepRow:
    told = StepRow("s1", T, "one", "complete", 1, E, frozenset(), row().result)
    return dataclasses.replace(told, **changes)


def _history() -> list[Record]:
    return [
        *_records(TASK_WAY, None, 100, 100, 100, 101.5, 101.5, 101.5, 104, 104),
        *_records(STEP_WAY, "s1", 100, 100.5, 101.5, 101.5),
        *_records(STEP_WAY, "s2", 101.5, 102.5, 103.5, 103.5),
    ]


def _without(name: str, step: str | None) -> list[Record]:
    return [r for r in _history() if (r.event, r.step) != (name, step)]


LIES: dict[str, tuple[Callable[..., Any], Evidence]] = {
    "task accepted and gone": (task_rules.task_is_over, _truth(tasks=[])),
    "task that is stuck": (
        task_rules.task_is_over,
        _truth(tasks=[TaskRow(T, "chain", "steps_in_process", None)]),
    ),
    "task that nobody repaired": (
        task_rules.task_is_over,
        _truth(tasks=[TaskRow(T, "chain", "blocked_by_failures", None)]),
    ),
    "task that ended twice": (
        task_rules.task_ends_once,
        _truth(
            records=[*_history(), Record(T, None, "cancel", "complete", "cancelled", 105.0)],
        ),
    ),
    "task that is over without a record": (
        task_rules.task_ends_once,
        _truth(records=_without("complete", None)),
    ),
    "task history with a gap": (
        task_rules.task_histories_are_paths,
        _truth(records=_without("initialize", None)),
    ),
    "step history with a gap": (
        task_rules.task_histories_are_paths,
        _truth(records=_without("hand_in", "s1")),
    ),
    "step that is not where its history leads": (
        task_rules.task_histories_are_paths,
        _truth(steps=[_step(state="error"), *_truth().steps[1:]]),
    ),
    "step event that nobody knows": (
        task_rules.task_histories_are_paths,
        _truth(records=[*_history(), Record(T, "s1", "teleport", "complete", "pending", 105.0)]),
    ),
    "step enqueued twice for one execution": (
        task_rules.steps_account_for_their_executions,
        _truth(records=[*_history(), Record(T, "s1", "enqueue", "complete", "enqueued", 105.0)]),
    ),
    "execution that nobody enqueued": (
        task_rules.steps_account_for_their_executions,
        _truth(tries=[("s1", E), ("s2", OTHER), ("s2", "e3")]),
    ),
    "execution of two steps": (
        task_rules.steps_account_for_their_executions,
        _truth(tries=[("s1", E), ("s2", E)]),
    ),
    "step complete, and its execution failed": (
        task_rules.steps_account_for_their_executions,
        _truth(rows=[row(status="failed"), *_truth().rows[1:]]),
    ),
    "step with another result than its execution": (
        task_rules.steps_account_for_their_executions,
        _truth(steps=[_step(result={"mark": "another"}), *_truth().steps[1:]]),
    ),
    "step that ran before its parent was complete": (
        task_rules.steps_wait_for_their_parents,
        _truth(
            records=[
                dataclasses.replace(r, at=104.0) if (r.event, r.step) == ("complete", "s1") else r
                for r in _history()
            ]
        ),
    ),
    "step that ran although its parent never was complete": (
        task_rules.steps_wait_for_their_parents,
        _truth(records=_without("complete", "s1")),
    ),
}


def test_true_task_has_no_violation() -> None:
    assert checker.check(_truth()) == []


@pytest.mark.parametrize("state", sorted(task_rules.TASK_TERMINAL - {"complete"}))
def test_task_that_somebody_ended_is_over(state: str) -> None:
    evidence = _truth(tasks=[TaskRow(T, "chain", state, 104.0)])

    assert list(task_rules.task_is_over(evidence)) == []


def test_step_that_somebody_completed_needs_no_execution_that_did() -> None:
    by_hand = [
        Record(T, "s1", "enqueue", "pending", "enqueued", 100.0),
        Record(T, "s1", "complete_manually", "enqueued", "complete", 101.5),
    ]
    records = [*[r for r in _history() if r.step != "s1"], *by_hand]
    evidence = _truth(records=records, rows=[row(status="failed"), *_truth().rows[1:]])

    assert list(task_rules.steps_account_for_their_executions(evidence)) == []


def test_checker_and_state_machines_have_the_same_tables() -> None:
    for machine, known in ((TASKS, task_rules.TASK_EVENTS), (STEPS, task_rules.STEP_EVENTS)):
        table = {
            event: (frozenset(map(str, rule.sources)), str(rule.target))
            for event, rule in machine.transitions.items()
        }
        assert table == known
    assert set(map(str, TASKS.terminal)) == task_rules.TASK_TERMINAL
    assert set(map(str, STEPS.terminal)) == task_rules.STEP_TERMINAL
