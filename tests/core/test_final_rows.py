"""What has happened stays as it was, whoever tries with SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, models, transaction

from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import transition
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.workflows.models import Step, Task, TransitionRecord
from orchestrator.workflows.states import STEPS, TASKS
from tests.factories import NOW, make_execution, make_step, make_task

pytestmark = pytest.mark.usefixtures("database")


def execute(statement: str, *parameters: Any) -> int:
    """Past the models, as an operator would in psql."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def key(row: models.Model) -> Any:
    return row.pk.hex if connection.vendor == "sqlite" and hasattr(row.pk, "hex") else row.pk


def contents(row: models.Model) -> dict[str, Any]:
    model: Any = type(row)
    found: dict[str, Any] = model.objects.filter(pk=row.pk).values().get()
    return found


def columns(model: type[models.Model]) -> list[str]:
    return [str(field.column) for field in model._meta.concrete_fields]


def ended_execution() -> Execution:
    running = make_execution(ExecutionStatus.RUNNING)
    result = {"n": 1}
    return transition(
        running, "complete", now=NOW, actor="w1", reason=Reason.SUCCEEDED, result=result
    )


def first_event() -> ExecutionEvent:
    return ended_execution().history.get()


def first_record() -> TransitionRecord:
    task = make_task()
    transition(task, "cancel", now=NOW, actor="ada")
    return task.history.get()


FINAL: list[Callable[[], models.Model]] = [
    *(lambda status=status: make_execution(status) for status in sorted(TERMINAL)),
    *(lambda state=state: make_task(state) for state in sorted(TASKS.terminal)),
    *(lambda state=state: make_step(state) for state in sorted(STEPS.terminal)),
    first_event,
    first_record,
]


@pytest.mark.parametrize("make", FINAL)
def test_no_column_of_what_is_final_can_be_changed(make: Callable[[], models.Model]) -> None:
    row = make()
    before, table = contents(row), row._meta.db_table
    for column in columns(type(row)):
        with pytest.raises(IntegrityError, match="is final"):
            execute(f"UPDATE {table} SET {column} = {column} WHERE id = %s", key(row))  # noqa: S608
    assert contents(row) == before


@pytest.mark.parametrize("make", FINAL)
def test_what_is_final_cannot_be_deleted(make: Callable[[], models.Model]) -> None:
    row = make()
    with pytest.raises(IntegrityError, match="is final"):
        execute(f"DELETE FROM {row._meta.db_table} WHERE id = %s", key(row))  # noqa: S608
    with pytest.raises(IntegrityError, match="is final"), transaction.atomic():
        row.delete()
    assert contents(row)


@pytest.mark.parametrize(
    "values", [{"result": {"n": 2}}, {"ended_at": NOW}, {"reason": "x"}, {"attempt": 7}], ids=str
)
def test_how_an_execution_ended_is_final(values: dict[str, Any]) -> None:
    execution = ended_execution()
    before = contents(execution)
    with pytest.raises(IntegrityError, match="terminal status is final"), transaction.atomic():
        Execution.objects.filter(pk=execution.pk).update(**values)
    assert contents(execution) == before


def test_execution_has_one_terminal_event() -> None:
    execution = ended_execution()
    (event,) = ExecutionEvent.objects.of(execution.pk)
    again = {"execution": execution, "event": "fail", "from_status": "running", "attempt": 1}
    with pytest.raises(IntegrityError, match=r"execution_ends_once|UNIQUE"), transaction.atomic():
        ExecutionEvent.objects.create(**again, to_status="failed", actor="x", at=NOW)
    ExecutionEvent.objects.create(**again, to_status="requested", actor="x", at=NOW)
    assert ExecutionEvent.objects.of(execution.pk).first() == event


@pytest.mark.parametrize("make", [make_execution, make_task, make_step])
def test_what_is_open_can_be_changed(make: Callable[[], models.Model]) -> None:
    row = make()
    table = row._meta.db_table
    assert execute(f"UPDATE {table} SET id = id WHERE id = %s", key(row)) == 1  # noqa: S608


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("model", [Execution, ExecutionEvent, Task, Step, TransitionRecord])
def test_nothing_of_it_can_be_truncated(model: type[models.Model]) -> None:
    first_event()
    first_record()
    with pytest.raises(IntegrityError, match="history is final"):
        execute(f"TRUNCATE {model._meta.db_table} CASCADE")
