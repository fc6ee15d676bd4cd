"""Parameters of claimed executions with their keys opened, and the values to be masked.

Only a worker's parent calls this, after the claim. The rows keep the references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.core import key_references, keyholder, masking, packs, redaction
from orchestrator.core.keyholder import Opened, Wanted
from orchestrator.core.models import Action, Execution


@dataclass(frozen=True)
class Contents:
    """The contents that the action of one claimed execution gets."""

    parameters: dict[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values to be masked in all that comes of it: of keys, and below a `secret` schema."""
    token: str = field(default="", repr=False)
    """That of its execution, if its action wants one; among the secrets, too."""
    refusal: str = ""
    """The reason why it cannot begin, in one sentence; empty if it can."""


def opened(executions: Sequence[Execution], *, unread: str = "") -> dict[UUID, Contents]:
    """Open the keys that claimed executions refer to, in two queries for any number; none without a
    reference.

    `unread`: ask nobody, and refuse those that refer to a key with this sentence.
    """
    references = {execution.pk: _references(execution) for execution in executions}
    with_keys = [execution for execution in executions if references[execution.pk]]
    wanted: Mapping[UUID, Sequence[Wanted]] = {}
    answers: Mapping[Wanted, Opened] = {}
    if with_keys and not unread:
        wanted = _wanted(with_keys, references)
        answers = keyholder.holder().open({each for several in wanted.values() for each in several})
    return {
        execution.pk: Contents({}, refusal=unread)
        if unread and references[execution.pk]
        else _contents(execution, wanted.get(execution.pk, ()), answers)
        for execution in executions
    }


def _references(execution: Execution) -> list[str]:
    return sorted({reference for _, reference in key_references.found(execution.parameters)})


def _wanted(
    executions: Sequence[Execution], references: Mapping[UUID, Sequence[str]]
) -> dict[UUID, list[Wanted]]:
    # the claim leaves out who requested them
    rows = Execution.objects.filter(pk__in=[execution.pk for execution in executions])
    owners = dict(rows.values_list("pk", "key_owner"))
    return {
        execution.pk: [
            Wanted(reference, execution.action_ref, owners.get(execution.pk) or 0)
            for reference in references[execution.pk]
        ]
        for execution in executions
    }


def _contents(
    execution: Execution, wanted: Sequence[Wanted], answers: Mapping[Wanted, Opened]
) -> Contents:
    for each in wanted:
        if refusal := answers[each].refusal:
            return Contents({}, refusal=refusal)
    action, parameters = execution.action, execution.parameters
    values = {each.reference: answers[each].value for each in wanted}
    if values:
        parameters = key_references.replaced(parameters, values)
        if problems := packs.validate_parameters(action, parameters):
            place = problems[0]
            message = f"With its keys opened its parameters do not fit: {place.pointer}: "
            return Contents({}, refusal=f"{message}{place.message}.")
    secrets = set(values.values())
    if _marks_secrets(action):
        for marked in redaction.marked(parameters, schema=action.parameters_schema):
            secrets.update(masking.worth_masking(marked))
    return Contents(parameters, tuple(sorted(secrets)))


def _marks_secrets(action: Action) -> bool:
    """Return True if its schema marks anything, looked up once for each time it was read."""
    known: bool | None = action.__dict__.get("_marks_secrets")
    if known is None:
        known = redaction.marks_anything(action.parameters_schema)
        action.__dict__["_marks_secrets"] = known
    return known
