"""Whoever is behind the executions of steps: who requested their tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from orchestrator.core.authority import Asker
from orchestrator.workflows.models import StepExecution


def of_executions(execution_ids: Collection[UUID]) -> Mapping[UUID, Asker]:
    """For `MusterApp.execution_askers`."""
    links = StepExecution.objects.filter(execution_id__in=execution_ids)
    columns = ("execution_id", "step__task__requested_by", "step__task__requester_number")
    rows = links.order_by().values_list(*columns)
    return {id: Asker(name, number or 0) for id, name, number in rows}
