"""Stale tasks: found by their limits, investigated and moved together, once, whoever looks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from orchestrator.core import clock, investigations, maintenance, metrics
from orchestrator.core.executions.logged import MOST_LINES
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.state_machine import TransitionConflict
from orchestrator.core.steady_clock import seconds_counted
from orchestrator.workflows import engine, snapshots
from orchestrator.workflows.engine import Detected, detect_stale
from orchestrator.workflows.maintenance import detect_stale_tasks
from orchestrator.workflows.models import (
    StalenessDefault,
    Task,
    TaskLimit,
    TaskStaleness,
    TaskTemplate,
    TransitionRecord,
)
from orchestrator.workflows.models.staleness import LEAST_MINUTES, MOST_MINUTES
from orchestrator.workflows.models.tasks import TaskQuerySet
from orchestrator.workflows.states import TASKS, StepState, TaskState
from settings import muster
from tests.core.test_investigations import tallied
from tests.factories import NOW, make_execution, make_step, make_task, make_template
from tests.locks import held
from tests.logged import logged
from tests.races import at_once
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database", "sent")

T = TaskState
MINUTES = {
    T.WAITING_FOR_DEPENDENCIES: 60,
    T.WAITING_FOR_RETRY: 30,
    T.STEPS_IN_PROCESS: 30,
}
IN_PROCESS = T.STEPS_IN_PROCESS
ACTIONS = {
    (True, True): "transitioned_to_dlq_and_error",
    (True, False): "moved_to_dlq_only",
    (False, True): "transitioned_to_error_only",
}
WOULD = {
    "transitioned_to_dlq_and_error": "would_transition_to_dlq_and_error",
    "moved_to_dlq_only": "would_move_to_dlq_only",
    "transitioned_to_error_only": "would_transition_to_error_only",
}


def template(name: str = "tidy", **definition: Any) -> TaskTemplate:
    return make_template(name, definition={"name": name, "steps": []} | definition)


def task(
    state: str = IN_PROCESS,
    *,
    for_minutes: float = 31,
    now: datetime = NOW,
    lifecycle: dict[str, Any] | None = None,
    **values: Any,
) -> Task:
    """A task that has been in its state for so long."""
    since = now - timedelta(minutes=for_minutes)
    values.setdefault("created_at", since)
    if lifecycle is not None:
        values.setdefault(
            "template", template(f"t{TaskTemplate.objects.count()}", lifecycle=lifecycle)
        )
    return make_task(state, state_entered_at=since, clock_started_at=since, **values)


def state_of(task: Task) -> str:
    return reread(task).state


def ids(detected: Detected) -> tuple[tuple[UUID, ...], ...]:
    """The tasks that were found, those that got an entry, those that were moved."""
    return detected.stale, detected.opened, detected.moved


# --- what is stale -------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "minutes"), MINUTES.items())
def test_task_over_its_limit_gets_an_entry_and_is_moved_to_error(
    state: str, minutes: float
) -> None:
    healthy = task(state, for_minutes=minutes - 0.01)
    stale = task(state, for_minutes=minutes)
    assert ids(detect_stale(NOW)) == ((stale.pk,), (stale.pk,), (stale.pk,))
    assert (state_of(healthy), state_of(stale)) == (state, "error")
    assert reread(stale).ended_at == NOW
    entry = DLQEntry.objects.get()
    assert (entry.subject_id, entry.original_state) == (stale.pk, state)
    assert (entry.dlq_reason, entry.opened_by) == ("staleness_timeout", "staleness_detection")
    assert entry.detail == f"{state} for {minutes}.0 min, allowed are {minutes}"
    record = TransitionRecord.objects.get()
    assert (record.task_id, record.event, record.to_state) == (stale.pk, "expire", "error")
    assert (record.actor, record.reason) == ("staleness_detection", "staleness_timeout")
    assert detect_stale(NOW) == Detected()


@pytest.mark.parametrize("state", sorted(set(T) - TASKS.ended - set(MINUTES)))
def test_other_states_have_no_limit_but_that_of_the_whole_task(state: str) -> None:
    old = task(state, for_minutes=1_440)
    task(state, for_minutes=1_439)
    assert detect_stale(NOW).stale == (old.pk,)
    assert DLQEntry.objects.get().detail == "its age is 1440.0 min, allowed are 1440"
    assert state_of(old) == "error"


@pytest.mark.parametrize("state", sorted(TASKS.ended))
def test_what_has_ended_is_never_stale(state: str) -> None:
    task(state, for_minutes=100_000)
    assert detect_stale(NOW) == Detected()


def test_the_clock_of_a_state_starts_when_its_retry_is_due() -> None:
    due_at = NOW + timedelta(minutes=40)
    make_task(T.WAITING_FOR_RETRY, clock_started_at=due_at, next_retry_at=due_at)
    assert detect_stale(NOW) == Detected()
    assert detect_stale(due_at + timedelta(minutes=29)) == Detected()
    assert len(detect_stale(due_at + timedelta(minutes=30)).moved) == 1


def test_task_over_two_limits_is_one() -> None:
    one = task(for_minutes=2_000)
    assert ids(detect_stale(NOW)) == ((one.pk,), (one.pk,), (one.pk,))
    assert DLQEntry.objects.get().detail == (
        "steps_in_process for 2000.0 min, allowed are 30; its age is 2000.0 min, allowed are 1440"
    )


# --- what does not count --------------------------------------------------------------------------


def in_flight(execution: Execution | None, *, task: Task, name: str) -> None:
    is_running = execution is not None and execution.status == "running"
    state = StepState.IN_PROGRESS if is_running else StepState.ENQUEUED
    make_step(state, task=task, name=name, execution=execution)


@pytest.mark.parametrize("state", [T.STEPS_IN_PROCESS, T.WAITING_FOR_DEPENDENCIES])
@pytest.mark.parametrize("waits", ["requested", "scheduling", "scheduled"])
def test_time_in_which_all_steps_wait_for_workers_counts_for_no_state(
    state: str, waits: str
) -> None:
    now = clock.now()
    one = task(state, for_minutes=1_439, now=now)
    in_flight(make_execution(waits, now=now), task=one, name="a")
    in_flight(make_execution(waits, now=now), task=one, name="b")
    assert detect_stale(now) == Detected()
    assert TaskLimit.objects.count_near(now=now, most=100) == {"warning": 1, "stale": 0}
    used = TaskStaleness.objects.get().threshold_percentage
    assert used == pytest.approx(1_439 / 14.4, abs=0.05)  # of its whole life, which has an end
    assert detect_stale(now + timedelta(minutes=1.1)).tasks[0].limit_name == "duration"


def test_limit_of_a_state_counts_from_the_time_at_which_a_worker_began_a_step() -> None:
    now = clock.now()
    one = task(for_minutes=200, now=now)
    begun = make_execution("running", now=now - timedelta(minutes=25))
    in_flight(begun, task=one, name="a")
    in_flight(make_execution(now=now), task=one, name="b")
    assert TaskLimit.objects.count_near(now=now, most=100) == {"warning": 1, "stale": 0}
    assert TaskStaleness.objects.get().health_status == "warning"
    assert detect_stale(now) == Detected()
    (found,) = detect_stale(now + timedelta(minutes=5)).tasks
    assert found.limit_name == "steps_in_process"
    assert found.overdue_minutes == pytest.approx(0, abs=0.1)
    assert found.detail == "steps_in_process for 30.0 min, allowed are 30"


def test_step_whose_execution_is_gone_waits_for_no_worker() -> None:
    one = task()
    in_flight(None, task=one, name="a")
    assert detect_stale(NOW).moved == (one.pk,)


# --- limits --------------------------------------------------------------------------------------


def test_a_templates_limits_beat_the_settings() -> None:
    patient = task(for_minutes=31, lifecycle={"max_steps_in_process_minutes": 120})
    hasty = task(for_minutes=2, lifecycle={"max_steps_in_process_minutes": 2})
    plain = task(for_minutes=29, lifecycle={})
    null = task(for_minutes=29, lifecycle={"max_steps_in_process_minutes": None})
    assert detect_stale(NOW).moved == (hasty.pk,)
    assert {state_of(one) for one in (patient, plain, null)} == {IN_PROCESS}


def test_an_environments_limits_beat_the_templates() -> None:
    made = template(
        lifecycle={"max_steps_in_process_minutes": 20, "staleness_action": "error"},
        environments={
            "production": {"lifecycle": {"max_steps_in_process_minutes": 50}},
            "test": {"lifecycle": {"staleness_action": "none"}},
            "steps": {"steps": {}},
        },
    )
    short, other, steps, long = (
        task(template=made, environment=environment, for_minutes=30).pk
        for environment in ("", "unheard of", "steps", "production")
    )
    task(template=made, environment="test", for_minutes=30)
    assert set(detect_stale(NOW).moved) == {short, other, steps}
    assert detect_stale(NOW + timedelta(minutes=20)).moved == (long,)
    assert not DLQEntry.objects.exists()  # the action is merged, too


def test_settings_take_effect_at_the_next_run(settings: Any) -> None:
    one, usual = task(for_minutes=10), settings.MUSTER
    assert detect_stale(NOW) == Detected()
    settings.MUSTER = replace(usual, task_max_steps_in_process_minutes=5)
    assert detect_stale(NOW).moved == (one.pk,)
    settings.MUSTER = usual
    StalenessDefault.objects.follow_settings()


@pytest.mark.parametrize("minutes", [9_999_999_999, 1e300])
def test_limit_beyond_what_a_timestamp_holds_is_one_of_ten_years(minutes: float) -> None:
    """Such a template may be installed already: it must not end the search for all the others."""
    endless = {f"max_{name}_minutes": minutes for name in (*MINUTES, "duration")}
    stale, young = task(for_minutes=45), task(for_minutes=100_000, lifecycle=endless)
    old = task(for_minutes=5_256_001, lifecycle=endless)
    foreseen = {each.task_uuid: each for each in detect_stale(NOW, dry_run=True).tasks}
    assert set(foreseen) == {stale.pk, old.pk}
    assert foreseen[old.pk].staleness_threshold_minutes == 5_256_000
    assert foreseen[old.pk].overdue_minutes == pytest.approx(1)
    assert set(detect_stale(NOW).moved) == {stale.pk, old.pk}
    assert state_of(young) == IN_PROCESS
    assert TaskLimit.objects.count_near(now=NOW, most=100) == {"warning": 0, "stale": 0}
    assert TaskStaleness.objects.get(pk=young.pk).health_status == "healthy"


@pytest.mark.parametrize("name", [*MINUTES, "duration"])
def test_setting_of_a_limit_has_the_bounds_of_templates(name: str) -> None:
    bounds: tuple[float, float] = (LEAST_MINUTES, MOST_MINUTES)
    assert muster.BOUNDS[f"task_max_{name}_minutes"] == bounds
    variable = f"MUSTER_TASK_MAX_{name.upper()}_MINUTES"
    for text in ("5256001", "inf", "nan", "1e-310"):
        message = f"{variable}={float(text)}: expected 0.001 to 5256000"
        with pytest.raises(ImproperlyConfigured, match=message):
            muster.from_environment({variable: text})
    for number in bounds:
        given = muster.from_environment({variable: str(number)})
        assert given.task_limits_minutes[name] == number


# --- what is done --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lifecycle", "for_minutes", "opened", "moved"),
    [
        ({"staleness_action": "dlq"}, 30, True, True),
        ({"staleness_action": "error"}, 30, False, True),
        ({"staleness_action": "none"}, 30, False, False),
        ({"staleness_action": "none"}, 1_440, True, True),
        ({"staleness_action": "none", "auto_dlq_on_timeout": False}, 1_440, False, True),
        ({"staleness_action": "none", "auto_fail_on_timeout": False}, 1_440, True, False),
        (
            {
                "staleness_action": "none",
                "auto_fail_on_timeout": False,
                "auto_dlq_on_timeout": False,
            },
            1_440,
            False,
            False,
        ),
        (
            {
                "staleness_action": "error",
                "auto_fail_on_timeout": False,
                "auto_dlq_on_timeout": True,
            },
            1_440,
            True,
            True,
        ),
    ],
)
def test_a_template_says_what_is_done(
    lifecycle: dict[str, Any], for_minutes: float, opened: bool, moved: bool
) -> None:
    one = task(for_minutes=for_minutes, lifecycle=lifecycle)
    foreseen, detected = detect_stale(NOW, dry_run=True), detect_stale(NOW)
    assert (bool(detected.opened), bool(detected.moved)) == (opened, moved)
    actions = [found.action_taken.value for found in detected.tasks]
    assert actions == ([ACTIONS[opened, moved]] if opened or moved else [])
    assert [found.action_taken.value for found in foreseen.tasks] == [WOULD[a] for a in actions]
    assert DLQEntry.objects.about(one.pk).exists() is opened
    assert state_of(one) == ("error" if moved else IN_PROCESS)
    assert detect_stale(NOW) == Detected()


def test_each_task_is_described_with_its_timing_and_the_action(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three limits: of a state, of the whole life, and both; the first that it was over counts."""
    state = task(for_minutes=45, lifecycle={"max_steps_in_process_minutes": 40})
    life = task(T.PENDING, for_minutes=5, created_at=NOW - timedelta(minutes=1_450))
    both = task(for_minutes=1_500, lifecycle={"max_duration_minutes": 20})
    found = {each.task_uuid: each for each in detect_stale(NOW).tasks}
    template = state.template
    assert asdict(found[state.pk]) == {
        "task_uuid": state.pk, "namespace_name": "tests", "task_name": template.name,
        "template_version": "1.0.0", "current_state": "steps_in_process",
        "limit_name": "steps_in_process", "time_in_state_minutes": 45, "task_age_minutes": 45,
        "staleness_threshold_minutes": 40, "overdue_minutes": 5,
        "detail": "steps_in_process for 45.0 min, allowed are 40",
        "action_taken": "transitioned_to_dlq_and_error", "moved_to_dlq": True,
        "transition_success": True,
    }  # fmt: skip
    of_life = found[life.pk]
    assert (of_life.current_state, of_life.limit_name) == ("pending", "duration")
    assert (of_life.time_in_state_minutes, of_life.task_age_minutes) == (5, 1_450)
    assert (of_life.staleness_threshold_minutes, of_life.overdue_minutes) == (1_440, 10)
    of_both = found[both.pk]
    assert (of_both.limit_name, of_both.overdue_minutes) == ("duration", 1_480)
    lines = {line["task_id"]: line for line in logged(caplog, "stale task")}
    assert set(lines) == {str(id) for id in found}
    line = lines[str(state.pk)]
    expected = asdict(found[state.pk]) | {"task_uuid": None}
    assert {name: line.get(name) for name in expected} == expected


def test_very_many_stale_tasks_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(MOST_LINES + 3):
        task()
    detect_stale(NOW)
    assert len(logged(caplog, "stale task")) == MOST_LINES
    (more,) = logged(caplog, "more lines left out")
    assert (more["line"], more["n"]) == ("stale task", 3)


def test_setting_switches_the_detection_off(settings: Any) -> None:
    stale = task(for_minutes=45)
    settings.MUSTER = replace(settings.MUSTER, staleness_detection_enabled=False)
    assert detect_stale_tasks(now=NOW) == {"stale": 0, "opened": 0, "moved": 0}
    assert not DLQEntry.objects.exists()
    settings.MUSTER = replace(settings.MUSTER, staleness_detection_enabled=True)
    assert detect_stale_tasks(now=NOW)["opened"] == 1
    assert DLQEntry.objects.get().subject_id == stale.pk


def test_dry_run_only_tells() -> None:
    one = task()
    assert ids(detect_stale(NOW, dry_run=True)) == ((one.pk,), (), ())
    assert state_of(one) == IN_PROCESS
    assert not DLQEntry.objects.exists()
    assert tallied("muster_staleness_detection_runs_total") == {}


def test_batches_take_the_oldest_first_and_leave_the_rest_for_the_next() -> None:
    tasks = [task(for_minutes=minutes).pk for minutes in (40, 60, 50)]
    assert [detect_stale(NOW, batch_size=1).moved for _ in range(4)] == [
        (tasks[1],),
        (tasks[2],),
        (tasks[0],),
        (),
    ]


def test_task_with_a_pending_entry_is_left_alone_until_that_is_closed() -> None:
    one = task()
    entry = investigations.open_manually("task", one.pk, detail="odd", now=NOW, actor="ada")
    assert detect_stale(NOW) == Detected()
    investigations.close(
        entry.dlq_entry_uuid, resolution=DLQEntry.Resolution.CANCELLED, now=NOW, actor="ada"
    )
    assert detect_stale(NOW).moved == (one.pk,)
    assert DLQEntry.objects.about(one.pk).count() == 2


def test_task_that_went_on_since_it_wanted_a_worker_is_stale_like_any_other() -> None:
    one, blocked = task(), task(T.BLOCKED_BY_FAILURES, for_minutes=1_440)
    reason = DLQEntry.Reason.WORKER_UNAVAILABLE
    subjects = snapshots.subjects([one, blocked], now=NOW)
    investigations.open_for(subjects, reason=reason, detail="", now=NOW, actor="executor")
    assert detect_stale(NOW).moved == (one.pk,), "the other waits for a worker still"
    entries = DLQEntry.objects.about(one.pk).order_by("pk")
    assert [(entry.dlq_reason, entry.resolution_status) for entry in entries] == [
        ("worker_unavailable", "cancelled"),
        ("staleness_timeout", "pending"),
    ]
    assert detect_stale(NOW) == Detected()


def test_an_entry_without_its_move_is_undone(monkeypatch: Any) -> None:
    one = task()
    monkeypatch.setattr(TaskQuerySet, "transition_many", lambda *_, **__: set())
    with pytest.raises(TransitionConflict):
        detect_stale(NOW)
    assert not DLQEntry.objects.exists()
    assert state_of(one) == IN_PROCESS


def test_a_move_without_its_entry_is_undone(monkeypatch: Any) -> None:
    one = task()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError

    monkeypatch.setattr(metrics.Counter, "add", fail)
    with pytest.raises(OSError):  # noqa: PT011 - it has no message
        detect_stale(NOW)
    assert not DLQEntry.objects.exists()
    assert state_of(one) == IN_PROCESS


def test_what_was_found_is_tallied_by_its_limit() -> None:
    task()
    task(T.PENDING, for_minutes=1_440)
    task(for_minutes=1_440, lifecycle={"staleness_action": "none", "auto_fail_on_timeout": False})
    detect_stale_tasks(now=NOW)
    assert tallied("muster_staleness_tasks_detected_total") == {
        ("steps_in_process", ""): 1,
        ("duration", ""): 2,
    }
    assert tallied("muster_staleness_tasks_transitioned_to_error_total") == {
        ("steps_in_process", ""): 1,
        ("duration", ""): 1,
    }
    assert tallied("muster_staleness_detection_runs_total") == {("", ""): 1}
    parts = tallied("muster_staleness_detection_duration_seconds")
    assert sum(value for (_, part), value in parts.items() if part != "sum") == 1
    assert tallied("muster_dlq_entries_created_total") == {("staleness_timeout", ""): 3}


def test_snapshot_tells_of_the_task_and_all_of_its_steps() -> None:
    one = task(for_minutes=45, lifecycle={"max_steps_in_process_minutes": 40}, priority=7,
               correlation_id="c-1", context={"password": "hush"})  # fmt: skip
    execution = make_execution("running", now=NOW - timedelta(minutes=45))
    make_step(StepState.COMPLETE, task=one, name="wash")
    make_step(
        StepState.IN_PROGRESS,
        task=one,
        name="dry",
        attempts=2,
        last_failure_at=NOW,
        execution=execution,
        error={"message": "x" * 10_000, "token": "hush"},
    )
    detect_stale(NOW)
    taken = DLQEntry.objects.get().snapshot
    wash, dry = taken.pop("steps")
    ref = one.template.ref
    assert taken == {
        "task_uuid": str(one.pk), "namespace": "tests", "task_name": one.template.name,
        "version": "1.0.0", "template": ref, "environment": "",
        "current_state": "steps_in_process",
        "template_configuration": {
            "lifecycle": {"max_steps_in_process_minutes": 40}, "metadata": {}, "steps": [],
        },
        "time_in_state_minutes": 45, "threshold_minutes": 40, "age_minutes": 45,
        "max_duration_minutes": 1_440, "priority": 7, "correlation_id": "c-1",
        "detected_at": NOW.isoformat(),
    }  # fmt: skip
    assert (wash["name"], wash["current_state"], wash["last_error"]) == ("wash", "complete", None)
    assert (dry["name"], dry["current_state"]) == ("dry", "in_progress")
    assert (dry["attempts"], dry["max_attempts"]) == (2, 3)
    assert (dry["execution_id"], dry["execution_status"]) == (str(execution.pk), "running")
    assert dry["execution_wait_reason"] == ""
    assert dry["last_error"]["token"] == "***"
    assert len(dry["last_error"]["message"]) < 2_100
    assert "hush" not in str(taken)


def test_snapshot_has_what_the_template_said_in_the_environment_of_the_task() -> None:
    made = template(
        metadata={"team": "orders", "api_key": "hush", "notes": "n" * 10_000},
        steps=[
            {"name": "wash", "action": "core.echo", "retry": {"max_attempts": 5}},
            {"name": "dry", "action": "core.echo"},
            {"name": "new_token", "action": "core.echo", "timeout_seconds": 60},
        ],
        environments={
            "prod": {
                "metadata": {"team": "night"},
                "steps": {"wash": {"retry": {"backoff": "none"}, "timeout_seconds": 9}},
            }
        },
    )
    (subject,) = snapshots.subjects([task(template=made, environment="prod")], now=NOW)
    configuration = subject.snapshot["template_configuration"]
    notes = configuration["metadata"].pop("notes")
    assert configuration == {
        "lifecycle": {},
        "metadata": {"team": "night", "api_key": "***"},
        "steps": [
            {
                "name": "wash",
                "retry": {"max_attempts": 5, "backoff": "none"},
                "timeout_seconds": 9,
            },
            {"name": "new_token", "timeout_seconds": 60},
        ],
    }
    assert len(notes) < 2_100


def test_the_number_of_statements_does_not_grow_with_the_tasks() -> None:
    def statements(number: int) -> int:
        for _ in range(number):
            make_step(StepState.IN_PROGRESS, task=task())
        with CaptureQueriesContext(connection) as queries:
            assert len(detect_stale(NOW).moved) == number
        # the portable swap takes row after row
        return sum("UPDATE" not in (query["sql"] or "")[:6] for query in queries)

    statements(1)
    assert statements(2) == statements(20)


# --- many at once --------------------------------------------------------------------------------


def test_two_detectors_at_once_open_one_entry_a_task() -> None:
    tasks = {task().pk for _ in range(30)}
    found = at_once(*[lambda: detect_stale(NOW)] * 4)
    moved = [id for detected in found for id in detected.moved]
    assert sorted(moved) == sorted(set(moved))
    assert set(moved) == tasks
    assert DLQEntry.objects.count() == 30
    assert TransitionRecord.objects.count() == 30


@contextmanager
def elsewhere(statement: str, *parameters: Any) -> Iterator[None]:
    """Another connection that has executed this, and has not committed."""
    other = connections.create_connection("default")
    try:
        with transaction_on(other), other.cursor() as cursor:
            cursor.execute(statement, parameters)
            yield
    finally:
        other.close()


@contextmanager
def transaction_on(other: Any) -> Iterator[None]:
    other.set_autocommit(False)
    try:
        yield
    finally:
        other.rollback()


# SQLite has one writer at a time: nobody holds a row
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_task_that_somebody_holds_is_passed_over_without_waiting() -> None:
    held, free = task(for_minutes=40), task()
    with elsewhere("SELECT 1 FROM workflows_task WHERE id = %s FOR UPDATE", held.pk):
        assert detect_stale(NOW).moved == (free.pk,)
    assert detect_stale(NOW).moved == (held.pk,)


def test_task_that_moved_on_while_it_was_looked_for_is_left_alone(monkeypatch: Any) -> None:
    """Found in a snapshot of before, and only then held."""
    one = task()
    overstepped = TaskLimit.objects.overstepped

    def late(**options: Any) -> Any:
        found = overstepped(**options)
        Task.objects.filter(pk=one.pk).update(clock_started_at=NOW)
        return found

    monkeypatch.setattr(TaskLimit.objects, "overstepped", late)
    assert detect_stale(NOW) == Detected()
    assert not DLQEntry.objects.exists()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_run_that_waited_for_a_lock_while_the_clock_was_set_moves_nothing(
    watch: clock.Watch, monkeypatch: Any
) -> None:
    one = task()
    StalenessDefault.objects.follow_settings()
    StalenessDefault.objects.update(minutes=F("minutes") + 1)  # so that the run has to write it
    asked = clock.asked_now

    def asked_now() -> datetime:
        watch.steps.append(clock.Step(600.0, seconds_counted()))
        return asked()

    with monkeypatch.context() as patched, held(*StalenessDefault.objects.all()) as lock:
        patched.setattr(clock, "asked_now", asked_now)
        lock.release_when_waited_for()
        assert detect_stale(NOW) == Detected()
    assert not DLQEntry.objects.exists()
    watch.steps.clear()
    assert detect_stale(NOW).moved == (one.pk,)


@pytest.mark.takes_time
def test_move_is_dated_by_the_time_after_the_lock(monkeypatch: Any) -> None:
    one = task()
    counted = chain([100.0], repeat(120.0))  # it is kept from going on for 20 s
    monkeypatch.setattr(clock, "seconds_counted", lambda: next(counted))
    assert detect_stale(NOW).moved == (one.pk,)
    assert reread(one).state_entered_at == NOW + timedelta(seconds=20)


def test_task_that_was_given_an_entry_meanwhile_is_left_alone(monkeypatch: Any) -> None:
    one = task()
    overstepped = TaskLimit.objects.overstepped

    def late(**options: Any) -> Any:
        found = overstepped(**options)
        investigations.open_manually("task", one.pk, detail="odd", now=NOW, actor="ada")
        return found

    monkeypatch.setattr(TaskLimit.objects, "overstepped", late)
    detected = detect_stale(NOW)
    assert ids(detected) == ((one.pk,), (), ())
    assert [task.action_taken for task in detected.tasks] == ["left_alone"]
    assert DLQEntry.objects.get().dlq_reason == "manual_dlq"
    assert state_of(one) == IN_PROCESS


# --- what it costs -------------------------------------------------------------------------------


# SQLite reads all open tasks; an installation on it has few
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_what_is_read_does_not_grow_with_the_tasks() -> None:
    """Of 20,000 open tasks 200 are stale: found through indexes, without reading the others."""
    made = template(lifecycle={"max_steps_in_process_minutes": 40})
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO workflows_task (id, template_id, environment, context, priority, state,
                fence, state_entered_at, clock_started_at, idempotency_key, initiator,
                source_system, reason, tags, requested_by, created_at)
            SELECT gen_random_uuid(), %s, '', '{}', 0, 'steps_in_process', 3, at, at, '', '', '',
                '', '[]', '', at
            FROM (
                SELECT %s - CASE WHEN n %% 100 = 7 THEN 45 ELSE n %% 39 END * interval '1 minute'
                    AS at
                FROM generate_series(1, 20000) AS n
            ) AS times
            """,
            [made.pk, NOW],
        )
        cursor.execute("ANALYZE workflows_task")
    with CaptureQueriesContext(connection) as queries:
        found = TaskLimit.objects.overstepped(now=NOW, limit=100, lock=False)
    assert len(found) == 100
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {queries[0]['sql']}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "using task_open_by_clock on workflows_task" in plan
    assert "task_open_by_age" in plan
    read = sum(
        int(rows) for rows in re.findall(r"workflows_task task_?\d* .*?rows=(\d+) loops", plan)
    )
    assert read <= 300, plan
    assert len(detect_stale(NOW).moved) == 100


# --- by the clock --------------------------------------------------------------------------------


def test_maintenance_goes_on_until_none_is_left() -> None:
    for _ in range(230):
        task()
    told = maintenance.run("muster.detect_stale_tasks", now=NOW)
    assert told == {"stale": 230, "opened": 230, "moved": 230}
    # all batches are one run: an alert looks at how long that takes
    assert tallied("muster_staleness_detection_runs_total") == {("", ""): 1}
    parts = tallied("muster_staleness_detection_duration_seconds")
    assert sum(value for (_, part), value in parts.items() if part != "sum") == 1
    assert maintenance.run("muster.detect_stale_tasks", now=NOW + timedelta(seconds=149)) is None
    assert maintenance.run("muster.detect_stale_tasks", now=NOW + timedelta(seconds=150)) == {
        "stale": 0,
        "opened": 0,
        "moved": 0,
    }


# --- what one sees -------------------------------------------------------------------------------


def test_the_view_tells_the_health_of_open_tasks_the_worst_first() -> None:
    now = clock.now()

    def seen(minutes: float, **values: Any) -> UUID:
        return task(for_minutes=minutes, now=now, **values).pk

    # a warning from 24 minutes on, of the database's own clock: a slow machine is a while at this
    healthy, warning, stale = seen(22), seen(24.1), seen(60)
    own = seen(31, lifecycle={"max_steps_in_process_minutes": 100})
    old = seen(1_300, state=T.PENDING)
    waits = task(T.WAITING_FOR_RETRY, for_minutes=-40, now=now, created_at=now).pk
    task("complete", for_minutes=9_999, now=now)
    # as an alert before the DLQ counts them
    assert TaskLimit.objects.count_near(now=clock.now(), most=100) == {"warning": 2, "stale": 1}
    assert set(TaskLimit.objects.near(now=clock.now(), limit=100)) == {warning, stale, old}
    rows = list(TaskStaleness.objects.all())
    assert [(row.task_uuid, row.health_status) for row in rows] == [
        (stale, "stale"),
        (old, "warning"),
        (warning, "warning"),
        (healthy, "healthy"),
        (own, "healthy"),
        (waits, "healthy"),
    ]
    by_id = {row.task_uuid: row for row in rows}
    assert by_id[own].staleness_threshold_minutes == 100
    # its state has no limit of its own: that of the whole task counts
    assert by_id[old].staleness_threshold_minutes == 1_440
    assert by_id[old].max_duration_minutes == 1_440
    assert by_id[stale].time_in_state_minutes == pytest.approx(61, abs=1)
    assert by_id[waits].time_in_state_minutes == 0
    assert (by_id[own].namespace_name, by_id[own].current_state) == ("tests", "steps_in_process")
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM v_task_state_analysis")
        columns = [column[0] for column in cursor.description]
        analysed = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    shared = {field.column for field in TaskStaleness._meta.fields} - {"used", "health_status"}
    assert set(columns) == shared | {"task_created_at", "state_entered_at", "clock_started_at"}
    assert {str(UUID(str(row["task_uuid"]))) for row in analysed} == set(map(str, by_id))
    [of_own] = [row for row in analysed if UUID(str(row["task_uuid"])) == own]
    assert (of_own["current_state"], of_own["staleness_threshold_minutes"]) == (IN_PROCESS, 100)
    with transaction.atomic():
        investigations.open_manually("task", warning, detail="d", now=now, actor="ada")
    assert [row.task_uuid for row in TaskStaleness.objects.filter(has_pending_entry=True)] == [
        warning
    ]
    # detection leaves it alone: it counts no longer, and comes last
    assert TaskLimit.objects.count_near(now=clock.now(), most=100) == {"warning": 1, "stale": 1}
    assert [row.task_uuid for row in TaskStaleness.objects.all()][-1] == warning
    assert engine.detect_stale(clock.asked_now()).stale == (stale,)


def test_the_view_agrees_with_detection_about_entries_for_want_of_a_worker() -> None:
    now = clock.now()
    went_on = task(for_minutes=60, now=now)
    blocked = task(T.BLOCKED_BY_FAILURES, for_minutes=9_999, now=now)
    reason = DLQEntry.Reason.WORKER_UNAVAILABLE
    subjects = snapshots.subjects([went_on, blocked], now=now)
    investigations.open_for(subjects, reason=reason, detail="", now=now, actor="executor")
    pending = dict(TaskStaleness.objects.values_list("task_uuid", "has_pending_entry"))
    assert pending == {went_on.pk: False, blocked.pk: True}
    assert TaskLimit.objects.count_near(now=now, most=100) == {"warning": 0, "stale": 1}
    assert TaskLimit.objects.near(now=now, limit=100) == [went_on.pk]
    assert detect_stale(now, dry_run=True).stale == (went_on.pk,)
