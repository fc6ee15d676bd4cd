"""Many rows at once: on PostgreSQL by COPY, and nobody sees a difference."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError, IntegrityError, transaction

from orchestrator.core import copying
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_execution

pytestmark = pytest.mark.usefixtures("database")

TRICKY = ["", "\\N", "\\", "a\tb\nc\rd", "\\.", "{}", '"', "'", "NULL", "ß€🙂", " x "]


def like(execution: Execution, **values: Any) -> Execution:
    """A new row with the values of this one, but for these."""
    fields = {field.attname for field in Execution._meta.concrete_fields}
    old = {name: getattr(execution, name) for name in fields}
    return Execution(**old | {"id": uuid4()} | values)


def written(rows: Sequence[Execution]) -> list[dict[str, Any]]:
    found = Execution.objects.in_bulk([row.pk for row in rows])
    names = [field.attname for field in Execution._meta.concrete_fields if field.name != "id"]
    return [{name: getattr(found[row.pk], name) for name in names} for row in rows]


def test_rows_are_as_an_insert_writes_them() -> None:
    first = make_execution("running")
    variants: list[dict[str, Any]] = [
        {"wait_reason": text, "parameters": {text: [text, None, 1.5, True, {"deep": text}]}}
        for text in TRICKY
    ]
    variants += [
        {"status": ExecutionStatus.REQUESTED, "worker_id": None, "start_by": None},
        {"created_at": NOW + timedelta(microseconds=1), "priority": -3, "labels": {}},
        {"parameters": [], "result": None},
    ]
    variants = [
        {name: value for name, value in each.items() if hasattr(first, name)} for each in variants
    ]
    copied = [like(first, **values) for values in variants]
    inserted = [like(first, **values) for values in variants]
    copying.insert_many(copied)
    Execution.objects.bulk_create(inserted)
    assert written(copied) == written(inserted)
    assert not any(row._state.adding for row in copied)


def test_one_row_alone_is_as_a_copied_one() -> None:
    first = make_execution("running")
    for text in TRICKY:
        values = {"wait_reason": text, "parameters": {text: [text, None, {"deep": 1.5}]}}
        alone, inserted = like(first, **values), like(first, **values)
        copying.insert_many([alone])
        Execution.objects.bulk_create([inserted])
        assert written([alone]) == written([inserted])
        assert not alone._state.adding


def test_one_row_that_exists_is_refused() -> None:
    first = make_execution()
    with pytest.raises(IntegrityError), transaction.atomic():
        copying.insert_many([like(first, id=first.pk)])


def test_row_that_exists_keeps_all_of_them_out() -> None:
    first = make_execution()
    new = like(first)
    with pytest.raises(IntegrityError), transaction.atomic():
        copying.insert_many([new, like(first, id=first.pk), like(first)])
    assert Execution.objects.count() == 1


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite has no limits
def test_value_that_does_not_fit_is_an_error_of_the_database() -> None:
    first = make_execution()
    with pytest.raises(DataError), transaction.atomic():
        copying.insert_many([like(first, reason="x" * 5_000), like(first)])


def test_database_gives_ids_that_rows_do_not_have() -> None:
    entries = [
        DLQEntry(
            dlq_reason=DLQEntry.Reason.MESSAGE_INVALID,
            dlq_timestamp=NOW,
            raw_body=bytes(range(256)),
            fingerprint=f"f{number}",
            x_death=[],
        )
        for number in range(3)
    ]
    copying.insert_many(entries)
    found = DLQEntry.objects.order_by("pk")
    assert len({entry.pk for entry in found}) == 3
    assert {bytes(entry.raw_body or b"") for entry in found} == {bytes(range(256))}


def test_nothing_is_written_for_no_rows() -> None:
    copying.insert_many([])
    assert Execution.objects.count() == 0
