"""What a benchmark does to its own installation between two rounds."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from benchmarks import muster_side
from orchestrator.core import executions
from orchestrator.core.models import Execution, ExecutionEvent
from tests.factories import NOW, make_execution

pytestmark = pytest.mark.usefixtures("database")


def test_tables_are_empty_for_the_next_round_and_protected_again() -> None:
    for _ in range(2):
        execution = make_execution()
        executions.cancel(execution_id=execution.pk, actor="operator", now=NOW)
        assert ExecutionEvent.objects.exists()

        with pytest.raises(IntegrityError), transaction.atomic():
            _delete_history()
        muster_side._empty_tables()

        assert not Execution.objects.exists()
        assert not ExecutionEvent.objects.exists()


def _delete_history() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orchestrator_executionevent")
