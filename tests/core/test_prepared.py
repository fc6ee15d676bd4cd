"""Queries that are composed once give what their querysets do."""

from __future__ import annotations

import copy
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db.models import QuerySet

from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent, Worker
from orchestrator.core.models.prepared import Prepared, PreparedForIds
from orchestrator.core.statements import Statement
from orchestrator.workflows.models import StepExecution
from tests.factories import NOW, make_dlq_entry, make_execution, make_worker

pytestmark = pytest.mark.usefixtures("database")


def _whole(id: UUID) -> QuerySet[Execution]:
    return Execution.objects.select_related("worker", "pinned_worker").filter(pk=id)


def _lean(id: UUID) -> QuerySet[Execution]:
    return Execution.objects.filter(pk=id, priority=3).without_contents()


def _history(id: UUID) -> QuerySet[ExecutionEvent]:
    return ExecutionEvent.objects.of(id)


def _letters(id: UUID) -> QuerySet[DLQEntry]:
    return DLQEntry.objects.about(id).without_contents()


@pytest.fixture
def execution() -> Execution:
    made = make_execution(
        status="scheduled",
        worker=make_worker("there"),
        priority=3,
        parameters={"nested": [1, {"a": None}]},
        result=None,
    )
    for event in ("schedule", "give_back", "schedule"):
        ExecutionEvent.objects.create(
            execution=made, event=event, from_status="requested", to_status="scheduled", attempt=1,
            actor="executor", at=NOW,
        )  # fmt: skip
    make_dlq_entry(subject_kind="execution", subject_id=made.pk)
    make_execution()
    return made


@pytest.mark.parametrize("build", [_whole, _lean, _history, _letters])
def test_rows_are_those_of_the_queryset(build: object, execution: Execution) -> None:
    assert callable(build)
    prepared = Prepared(build)
    expected = list(build(execution.pk))
    assert expected
    for _ in range(2):  # composed, and then as it was composed
        found = prepared(execution.pk)
        assert [_contents(row) for row in found] == [_contents(row) for row in expected]
        assert [row.get_deferred_fields() for row in found] == [
            row.get_deferred_fields() for row in expected
        ]
        assert not any(row._state.adding for row in found)
    assert prepared(uuid4()) == []


def test_related_rows_are_there_without_a_query(
    execution: Execution, django_assert_num_queries: object
) -> None:
    prepared = Prepared(_whole)
    assert callable(django_assert_num_queries)
    prepared(execution.pk)
    with django_assert_num_queries(1):
        (found,) = prepared(execution.pk)
        assert found.worker is not None
        assert found.worker.name == "there"
        assert found.pinned_worker is None


def test_tuples_are_tuples(execution: Execution) -> None:
    names = ("pk", "attempt", "worker__name")
    prepared = Prepared(lambda id: Execution.objects.filter(pk=id).values_list(*names))
    assert prepared(execution.pk) == [(execution.pk, execution.attempt, "there")]
    joined = Prepared(
        lambda id: StepExecution.objects.filter(execution__in=[id]).values_list("step__task_id")
    )
    assert joined(execution.pk) == []


def test_it_may_depend_on_several_ids(execution: Execution) -> None:
    prepared = Prepared(
        lambda attempt, status: Execution.objects.filter(attempt__lte=attempt, status=status),
        *(57, "any-status"),
    )
    assert prepared(execution.attempt, "scheduled") == [execution]
    assert prepared(execution.attempt, "running") == []
    assert prepared(execution.attempt - 1, "scheduled") == []


def test_any_number_of_ids_gives_the_same(execution: Execution) -> None:
    prepared = PreparedForIds(
        lambda ids: Execution.objects.filter(pk__in=ids).order_by("pk").values_list("status")
    )
    (other,) = Execution.objects.exclude(pk=execution.pk)
    assert prepared([execution.pk]) == [("scheduled",)]
    for _ in range(2):  # composed, and then as it was composed
        assert prepared({execution.pk, other.pk, uuid4()}) == [("scheduled",), (other.status,)]
    assert prepared([]) == []


def test_ids_may_be_numbers_and_texts(execution: Execution) -> None:
    make_worker('a "quoted, one"')
    numbers = PreparedForIds(lambda ids: Worker.objects.filter(pk__in=ids).order_by("pk"), -57)
    names = PreparedForIds(lambda names: Worker.objects.filter(name__in=names), "any-name")
    there, quoted = Worker.objects.order_by("pk")
    assert numbers([there.pk, quoted.pk]) == [there, quoted]
    assert names([quoted.name, "nobody"]) == [quoted]


def test_ids_of_other_rows_are_compared_with_their_column(execution: Execution) -> None:
    prepared = PreparedForIds(lambda ids: ExecutionEvent.objects.filter(execution__in=ids))
    (other,) = Execution.objects.exclude(pk=execution.pk)
    assert len(prepared([execution.pk, other.pk])) == execution.history.count() == 3


def test_each_database_executes_a_statement() -> None:
    cast = "CAST(%(b)s AS text)"
    statement = Statement(f"SELECT {cast}, '5 %', CAST(%(a)s AS text), {cast}")
    assert statement.execute({"a": "x", "b": "y"}) == [("y", "5 %", "x", "y")]


def test_it_may_depend_on_a_time(execution: Execution) -> None:
    prepared = Prepared(
        lambda now: Execution.objects.filter(pk=execution.pk, created_at__lt=now), NOW
    )
    assert prepared(execution.created_at + timedelta(microseconds=1)) == [execution]
    assert prepared(execution.created_at) == []


def test_it_may_depend_on_nothing(execution: Execution) -> None:
    prepared = Prepared(lambda: Execution.objects.filter(priority=3))
    assert prepared() == [execution]
    Execution.objects.update(priority=4)
    assert prepared() == []


def test_two_values_with_one_stand_in_are_refused() -> None:
    with pytest.raises(AssertionError, match="same stand-in"):
        Prepared(lambda a, b: Execution.objects.filter(pk__gte=a, pk__lte=b))(uuid4(), uuid4())


def test_a_query_that_does_not_ask_for_the_value_is_refused() -> None:
    with pytest.raises(AssertionError, match="does not ask for its value"):
        Prepared(lambda id: Execution.objects.filter(priority=3))(uuid4())


def _contents(row: object) -> dict[str, object]:
    values = copy.copy(vars(row))
    values.pop("_state")
    return values
