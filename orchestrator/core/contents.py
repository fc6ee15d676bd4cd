"""The contents that executions are given and give, without their secrets.

API, `--json`, terminal, admin and the snapshots of investigations all take it from here. Secrets
are the values that a schema or a name marks, see `redaction`, and what an app that requested the
execution knows to be secret in it (`MusterApp.execution_secrets`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.core import frame
from orchestrator.core.masking import Masker
from orchestrator.core.models import Action, Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.redaction import redacted, redacted_text


@dataclass(frozen=True)
class Secrets:
    """The secrets that an app knows in an execution."""

    result_schema: Any = None
    values: Collection[str] = field(default=(), repr=False)
    """Masked wherever they stand."""
    again: str = ""
    """The way to run the execution again, in place of a second request: that would store the
    secrets as those of its caller. Follows its id in a sentence."""

    @property
    def masker(self) -> Masker:
        return Masker(self.values)


UNKNOWN = Secrets()


def secrets_of(executions: Collection[Execution]) -> Mapping[UUID, Secrets]:
    """Ask the apps for what is secret in these executions; none is asked for one alone."""
    known: dict[UUID, Secrets] = {}
    for secrets_of in frame.collect(lambda app: app.execution_secrets):
        known |= secrets_of(executions)
    return known


def parameters(execution: Execution, secrets: Secrets = UNKNOWN) -> dict[str, Any]:
    """Its parameters, without the values that its action's schema, or a name, marks."""
    return given(execution.parameters, execution.action, secrets)


def given(parameters: Any, action: Action, secrets: Secrets = UNKNOWN) -> dict[str, Any]:
    """The parameters of an execution of this action, without their secrets."""
    schema = action.parameters_schema
    shown: dict[str, Any] = secrets.masker.value(redacted(parameters, schema=schema))
    return shown


def result(execution: Execution, secrets: Secrets = UNKNOWN) -> Any:
    """Its result. Only names mark its secrets, unless an app knows a schema of it."""
    shown = secrets.masker.value(redacted(execution.result, schema=secrets.result_schema))
    return with_message_redacted(shown) if execution.reason != Reason.SUCCEEDED else shown


def with_message_redacted(shown: Any) -> Any:
    """The report of an action about its failure, with the message redacted as a text of unknown
    form."""
    if not isinstance(shown, dict) or not isinstance(shown.get("message"), str):
        return shown
    return shown | {"message": redacted_text(shown["message"])}


def message(value: Any, secrets: Secrets = UNKNOWN) -> str:
    """The `message` of a result, as `result` shows it; nearly always a text."""
    shown = redacted({"message": value}, schema=secrets.result_schema)
    return str(with_message_redacted(secrets.masker.value(shown))["message"])
