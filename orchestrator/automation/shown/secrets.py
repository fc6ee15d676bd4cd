"""The secrets in the executions that rules request."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from orchestrator.automation.models import Enforcement
from orchestrator.core import masking, redaction
from orchestrator.core.contents import Secrets
from orchestrator.core.executions.checking import OWN_KEYS
from orchestrator.core.models import Execution


def of_executions(executions: Collection[Execution]) -> dict[UUID, Secrets]:
    """The values that the schema of an event's payload marks, wherever the rule put them. Nobody is
    asked about executions that no rule requested."""
    mine = [each.pk for each in executions if may_be_of_a_rule(each)]
    if not mine:
        return {}
    rows = Enforcement.objects.filter(execution__in=mine)
    return {
        row.execution_id: Secrets(
            values=values,
            again=f"answers an event with secrets: replay event {row.event_id} for the rule "
            f"{row.rule}, which runs it again",
        )
        for row in rows.select_related("event__trigger__type", "rule")
        if row.execution_id is not None and (values := _marked(row))
    }


def may_be_of_a_rule(execution: Execution) -> bool:
    """Return False if no rule requested it; nobody needs to be asked then."""
    if "idempotency_key" in execution.get_deferred_fields():
        return True
    return (execution.idempotency_key or "").startswith(OWN_KEYS)


def _marked(row: Enforcement) -> list[str]:
    schema = row.event.trigger.type.payload_schema
    if not redaction.marks_anything(schema):
        return []
    marked = redaction.marked(row.event.payload, schema=schema)
    return [text for each in marked for text in masking.worth_masking(each)]
