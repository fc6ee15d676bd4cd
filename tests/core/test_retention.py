"""What has been over for long enough goes, and nothing else."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.conf import LazySettings
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction

from orchestrator.core import executions, investigations, retention
from orchestrator.core.executions import IdempotencyKeyFreed, placing
from orchestrator.core.frame import Retention
from orchestrator.core.metrics import exposition
from orchestrator.core.models import (
    DLQEntry,
    DLQEntryEvent,
    Execution,
    ExecutionEvent,
    Pruning,
    Tally,
    Worker,
    WorkerEvent,
)
from orchestrator.core.models.dead_letters import OF_LETTERS
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import transition
from orchestrator.core.states import OPEN, TERMINAL, ExecutionStatus
from orchestrator.workflows.models import (
    Step,
    StepDependency,
    StepExecution,
    Task,
    TransitionRecord,
)
from orchestrator.workflows.states import StepState, TaskState
from tests.factories import (
    NOW,
    make_dlq_entry,
    make_execution,
    make_step,
    make_task,
    make_worker,
)
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database")

LONG_AGO = NOW - timedelta(days=40)
LATELY = NOW - timedelta(days=20)

_number = count()


def id_of(at: datetime) -> UUID:
    """An id as the row would have if it had been made then."""
    return UUID(int=uuid7_floor(at).int | next(_number) << 64 | secrets.randbits(60))


def ended(at: datetime, status: str = ExecutionStatus.COMPLETED, **values: Any) -> Execution:
    return make_execution(status, now=at, **({"id": id_of(at - timedelta(hours=1))} | values))


def run_at(at: datetime) -> Execution:
    """An execution that ran, with its history."""
    execution = make_execution(ExecutionStatus.RUNNING, now=at, id=id_of(at))
    return transition(execution, "complete", now=at, actor="w1", reason=Reason.SUCCEEDED, result={})


def ended_task(at: datetime, **values: Any) -> Task:
    state = TaskState.CANCELLED
    return make_task(state, now=at, **({"id": id_of(at - timedelta(hours=1))} | values))


def left(model: type[models.Model]) -> int:
    rows: Any = model._default_manager
    return int(rows.count())


def test_old_executions_go_with_their_histories() -> None:
    run_at(LONG_AGO)
    lately = run_at(LATELY)
    assert retention.prune(now=NOW) == {"executions": 1}
    assert Execution.objects.get() == lately
    assert ExecutionEvent.objects.get().execution == lately


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_an_execution_goes_whatever_its_end(status: str) -> None:
    ended(LONG_AGO, status)
    assert retention.prune(now=NOW) == {"executions": 1}


@pytest.mark.parametrize("status", sorted(OPEN))
def test_what_is_open_stays_however_old_it_is(status: str) -> None:
    make_execution(status, now=LONG_AGO, id=id_of(LONG_AGO))
    assert retention.prune(now=NOW + timedelta(days=3650)) == {}


def test_an_execution_stays_while_its_investigation_is_pending() -> None:
    execution = ended(LONG_AGO, ExecutionStatus.FAILED)
    entry = make_dlq_entry(about=execution, now=LONG_AGO)
    assert retention.prune(now=NOW) == {}
    DLQEntry.objects.filter(pk=entry.pk).update(
        resolution_status=DLQEntry.Resolution.CANCELLED, resolved_by="ada", resolved_at=LATELY
    )
    assert retention.prune(now=NOW) == {"executions": 1}
    assert left(DLQEntry) == 1


def test_closed_entries_go_later_and_pending_ones_never() -> None:
    at = NOW - timedelta(days=100)
    pending = make_dlq_entry(now=at)
    closed = make_dlq_entry(
        now=at,
        fingerprint="other",
        resolution_status=DLQEntry.Resolution.CANCELLED,
        resolved_by="ada",
        resolved_at=at,
    )
    for entry in (pending, closed):
        DLQEntryEvent.objects.create(entry=entry, state=entry.resolution_status)
    assert retention.prune(now=NOW) == {"entries": 1}
    assert DLQEntry.objects.get() == DLQEntryEvent.objects.get().entry == pending


def test_an_old_task_goes_with_its_steps_and_then_their_executions() -> None:
    task = ended_task(LONG_AGO)
    parent = make_step(StepState.CANCELLED, task=task, now=LONG_AGO)
    child = make_step(StepState.CANCELLED, task=task, name="dry", now=LONG_AGO)
    StepDependency.objects.create(parent=parent, child=child)
    StepExecution.objects.create(step=parent, execution=ended(LONG_AGO), fence=1)
    TransitionRecord.objects.create(
        task=task, event="cancel", from_state="pending", to_state="cancelled", fence=0,
        actor="ada", processor="here:1", at=LONG_AGO,
    )  # fmt: skip
    assert retention.prune(now=NOW) == {"tasks": 1, "executions": 1}
    assert not any(
        left(model) for model in (Task, Step, StepDependency, StepExecution, TransitionRecord)
    )


def test_the_executions_of_a_task_stay_as_long_as_it() -> None:
    step = make_step(StepState.COMPLETE, task=make_task(TaskState.STEPS_IN_PROCESS, now=NOW))
    StepExecution.objects.create(step=step, execution=ended(LONG_AGO), fence=1)
    assert retention.prune(now=NOW) == {}


@pytest.mark.parametrize("state", [TaskState.ERROR, TaskState.BLOCKED_BY_FAILURES])
def test_a_task_that_somebody_may_still_repair_stays(state: TaskState) -> None:
    make_task(state, now=LONG_AGO, id=id_of(LONG_AGO))
    assert retention.prune(now=NOW) == {}


def test_a_retired_worker_goes_when_no_execution_can_name_it() -> None:
    gone = make_worker("gone", now=LONG_AGO, status=Worker.Status.INACTIVE, retired_at=LONG_AGO)
    WorkerEvent.objects.create(worker=gone, kind="retired", incarnation=1, actor="ada", at=LONG_AGO)
    kept = ended(NOW - timedelta(days=60), worker=gone, id=id_of(NOW - timedelta(days=60)))
    entry = make_dlq_entry(about=kept)
    assert retention.prune(now=NOW) == {}
    DLQEntry.objects.filter(pk=entry.pk).update(
        resolution_status=DLQEntry.Resolution.CANCELLED, resolved_by="ada", resolved_at=NOW
    )
    assert retention.prune(now=NOW) == {"executions": 1, "workers": 1}
    assert left(WorkerEvent) == 0


def test_a_worker_that_is_not_retired_stays() -> None:
    make_worker("silent", now=LONG_AGO, status=Worker.Status.INACTIVE)
    assert retention.prune(now=NOW) == {}


def test_the_oldest_beyond_a_number_go(settings: LazySettings) -> None:
    settings.MUSTER = replace(settings.MUSTER, keep_executions=3)
    at = [NOW - timedelta(days=days) for days in range(6)]
    rows = [ended(each) for each in at]
    assert retention.prune(now=NOW) == {"executions": 2}
    # the newest that is too many gives the limit, and is not older than that itself
    assert set(Execution.objects.all()) == set(rows[:4])


def test_nothing_goes_in_its_first_hour(settings: LazySettings) -> None:
    settings.MUSTER = replace(settings.MUSTER, keep_executions=1)
    for minutes in (10, 30, 59):
        ended(NOW - timedelta(minutes=minutes))
    assert retention.prune(now=NOW) == {}


def test_inf_keeps_everything(settings: LazySettings) -> None:
    settings.MUSTER = replace(settings.MUSTER, keep_executions_days=float("inf"))
    ended(LONG_AGO)
    assert retention.prune(now=NOW + timedelta(days=36500)) == {}


def test_it_goes_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    (kind,) = [each.kind for each in retention.old(now=NOW) if each.kind.name == "executions"]
    rows = retention.Old(replace(kind, at_once=2), NOW - timedelta(days=30))
    executions = sorted(ended(LONG_AGO + timedelta(hours=n)).pk for n in range(5))
    batches = [rows.remove() for _ in range(3)]
    assert [id for batch in batches for id in batch] == executions
    assert [len(batch) for batch in batches] == [2, 2, 1]


def kinds(*names: str, **values: Any) -> list[Retention]:
    """These kinds with these values, in this order."""
    known = {each.kind.name: each.kind for each in retention.old(now=NOW)}
    return [replace(known[name], **values) for name in names]


def test_a_tick_ends_in_time_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    of_executions = kinds("executions", at_once=2)
    monkeypatch.setattr(retention, "_kinds", lambda: of_executions)
    for _ in range(5):
        ended(LONG_AGO)
    assert retention.prune(now=NOW, most_seconds=0) == {"executions": 2}
    assert retention.prune(now=NOW) == {"executions": 3}


def test_kind_that_needs_all_of_a_tick_leaves_the_others_their_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [kind] = kinds("executions", at_once=1)
    both = [replace(kind, name=name) for name in ("first", "second")]
    monkeypatch.setattr(retention, "_kinds", lambda: both)
    seconds = count()
    monkeypatch.setattr(retention, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    for _ in range(20):
        ended(LONG_AGO)
    removed = retention.prune(now=NOW, most_seconds=10)
    assert set(removed) == {"first", "second"}
    assert all(3 <= number <= 7 for number in removed.values())


def test_kind_that_fails_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = kinds("executions", "workers")
    broken = replace(first, name="broken", days="no_such_setting")
    monkeypatch.setattr(retention, "_kinds", lambda: [broken, first, *others])
    ended(LONG_AGO)
    with pytest.raises(AttributeError, match="no_such_setting"):
        retention.prune(now=NOW)
    assert left(Execution) == 0


def test_what_went_is_counted_by_kind() -> None:
    ended(LONG_AGO)
    retention.prune(now=NOW)
    assert Tally.objects.get(metric="muster_rows_pruned_total", value=1).reason == "executions"
    text = exposition.rendered("text/plain")[0].decode()
    assert 'muster_rows_pruned_total{kind="executions"} 1.0' in text
    assert 'muster_rows_pruned_total{kind="tasks"} 0.0' in text


def test_outside_of_pruning_old_rows_are_as_final_as_ever() -> None:
    run_at(LONG_AGO)
    retention.prune(now=NOW - timedelta(days=20))
    for model in (Execution, ExecutionEvent):
        with pytest.raises(IntegrityError, match="is final"), transaction.atomic():
            model.objects.all()._raw_delete(connection.alias)
    assert left(Pruning) == 0


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_rows_that_another_session_holds_are_left() -> None:
    held = ended(LONG_AGO)
    ended(LONG_AGO + timedelta(days=1))
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT FROM orchestrator_execution WHERE id = %s FOR UPDATE", [held.pk])
            assert retention.prune(now=NOW) == {"executions": 1}
            cursor.execute("ROLLBACK")
    finally:
        other.close()
    assert Execution.objects.get() == held


def test_a_key_whose_holder_is_removed_at_that_moment_accepts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended(LONG_AGO, idempotency_key="order-7", key_owner=0)
    monkeypatch.setattr(placing, "is_idle", lambda: False)
    insert = type(Execution.objects.all()).bulk_create

    def insert_then_prune(*arguments: Any, **keywords: Any) -> Any:
        written = insert(*arguments, **keywords)
        retention.prune(now=NOW)
        return written

    monkeypatch.setattr(type(Execution.objects.all()), "bulk_create", insert_then_prune)
    new = executions.NewExecution(action_ref="core.echo", idempotency_key="order-7")
    with pytest.raises(IdempotencyKeyFreed):
        executions.request(new, requested_by="ada", now=NOW)
    # undone with the transaction, as nobody was accepted
    assert left(Execution) == 1


UNINDEXED = {"Execution.worker", "Execution.pinned_worker"}
"""Few workers are ever removed, and executions are written thousands of times a second."""


def test_what_refers_to_pruned_rows_has_an_index() -> None:
    """Without one the database reads a whole table for each row that is removed."""
    kinds = [each.kind for each in retention.old(now=NOW)]
    pruned = {apps.get_model(kind.model) for kind in kinds}
    pruned |= {apps.get_model(part.rpartition(".")[0]) for kind in kinds for part in kind.parts}
    referring = {
        field
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        # without a constraint the database looks for no referring row
        if field.related_model in pruned and getattr(field, "db_constraint", False)
    }
    unindexed = {f"{f.model.__name__}.{f.name}" for f in referring if not _is_indexed(f)}
    assert unindexed == UNINDEXED


def _is_indexed(field: Any) -> bool:
    """Return True if some index begins with this foreign key."""
    meta = field.model._meta
    firsts = set()
    for each in [*meta.indexes, *meta.constraints]:
        by_name = getattr(each, "fields", ())
        firsts |= set(by_name[:1])
        firsts |= {getattr(f, "name", "") for f in getattr(each, "expressions", ())[:1]}
    return field.db_index or field.unique or field.name in firsts


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("prune", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_a_dry_run_counts_and_removes_nothing() -> None:
    ended(LONG_AGO)
    assert command("--dry-run") == "Would remove 1 executions.\n"
    assert left(Execution) == 1


def test_the_command_removes_all_of_it() -> None:
    ended(LONG_AGO)
    assert command() == "Removed 1 executions.\n"
    assert command("--json").strip().startswith("{")
    assert command() == "Removed nothing.\n"


# --- letters that nobody closes -------------------------------------------------------------------


@pytest.fixture
def a_week(settings: LazySettings) -> None:
    settings.MUSTER = replace(settings.MUSTER, keep_pending_letters_days=7)


def letter(reason: str, **values: Any) -> DLQEntry:
    """A pending entry of eight days ago."""
    return make_dlq_entry(now=NOW - timedelta(days=8), dlq_reason=reason, **values)


@pytest.mark.parametrize("reason", OF_LETTERS)
def test_a_letter_that_nobody_closes_is_closed_by_its_age(a_week: None, reason: str) -> None:
    entry = letter(reason)
    assert retention.close_letters(now=NOW - timedelta(days=1, seconds=1)) == 0
    assert retention.close_letters(now=NOW) == 1
    entry.refresh_from_db()
    assert (entry.resolution_status, entry.resolved_by) == ("permanently_failed", "retention")
    assert (entry.resolved_at, entry.updated_at) == (NOW, NOW)
    assert entry.resolution_notes == "nobody closed it in 7 days (MUSTER_KEEP_PENDING_LETTERS_DAYS)"
    assert retention.close_letters(now=NOW) == 0


def test_nothing_is_closed_by_its_age_unless_a_setting_says_so() -> None:
    letter("queue_ttl_expired")
    assert retention.close_letters(now=NOW + timedelta(days=36500)) == 0


def test_an_execution_goes_when_its_letters_were_closed_by_their_age(a_week: None) -> None:
    execution = ended(LONG_AGO, ExecutionStatus.FAILED)
    letter("queue_ttl_expired", about=execution)
    letter("unroutable", about=execution)
    assert retention.prune(now=NOW) == {}
    assert retention.close_letters(now=NOW) == 2
    assert retention.prune(now=NOW) == {"executions": 1}
    assert retention.prune(now=NOW + timedelta(days=91)) == {"entries": 2}


def test_what_a_person_has_to_look_at_is_closed_by_nobody_else(a_week: None) -> None:
    for reason in set(DLQEntry.Reason.values) - set(OF_LETTERS):
        letter(reason)
    letter("message_invalid", subject_kind="webhook", subject_id=id_of(NOW))
    assert retention.close_letters(now=NOW) == 0


@pytest.mark.parametrize("column", ["last_seen_at", "updated_at"])
def test_the_age_of_a_letter_counts_from_what_was_heard_of_it_last(
    a_week: None, column: str
) -> None:
    letter("message_invalid", **{column: NOW - timedelta(days=6)})
    assert retention.close_letters(now=NOW) == 0
    assert retention.close_letters(now=NOW + timedelta(days=1, seconds=1)) == 1


def test_letters_are_closed_the_oldest_first_and_no_more_than_a_tick_may(
    a_week: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LETTERS_AT_ONCE", 2)
    younger, old, oldest = (make_dlq_entry(now=NOW - timedelta(days=days)) for days in (8, 9, 10))
    assert retention.close_letters(now=NOW, most_seconds=0) == 0
    assert retention.close_letters(now=NOW) == 2
    assert list(DLQEntry.objects.pending()) == [younger]
    assert retention.close_letters(now=NOW) == 1
    assert {reread(each).resolved_by for each in (old, oldest)} == {"retention"}


def test_a_letter_that_somebody_closes_at_the_same_moment_is_theirs(
    a_week: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, entry = investigations.close, letter("unroutable")

    def beaten(*arguments: Any, **values: Any) -> None:
        close(*arguments, **values | {"actor": "ada"})
        close(*arguments, **values)

    monkeypatch.setattr(investigations, "close", beaten)
    assert retention.close_letters(now=NOW) == 0
    assert reread(entry).resolved_by == "ada"
