"""An action: as JSON, and what of its options is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.models import Action
from orchestrator.core.redaction import redacted, redacted_schema
from orchestrator.core.shown.documents import Shown

PRIVATE_OPTIONS = ("env", "headers")
"""Options whose values packs fill with credentials."""


class PackOut(Shown):
    """The pack that brings an action."""

    name: str
    version: str


class ActionSummary(Shown):
    """An action as listings show it."""

    ref: str
    description: str
    runtime: str
    enabled: bool
    dangerous: bool = Field(
        description="true if it does whatever its caller says: `actions.run_any_command` is needed."
    )
    pack: PackOut
    updated_at: datetime


class ActionDetail(ActionSummary):
    """An action with everything that its pack declares."""

    parameters_schema: Any = Field(
        description="JSON Schema, 2020-12; values that it gives for secrets are `***`."
    )
    entry_point: Any
    runtime_options: Any = Field(
        description="`env` and `headers` are `***` without `payloads.read`."
    )
    limits: Any
    isolation: str = Field(
        description="The least isolation that it runs at: trusted, process, user or container."
    )
    timeout_seconds: float | None = Field(description="null for the installation's default.")
    queue_ttl_ms: int | None
    scheduled_timeout_seconds: float | None
    worker_selector: dict[str, str]
    queue: str = Field(description="The queue of requests that name none; empty for the default.")
    retry_policy: Any
    idempotent: bool
    on_no_worker: Action.OnNoWorker


def detail(action: Action, *, seen_by: Principal) -> ActionDetail:
    """Convert an action, loaded with its pack."""
    shown = ActionDetail.model_validate(action)
    shown.parameters_schema = parameters_schema(action)
    shown.runtime_options = options(action, seen_by=seen_by)
    return shown


def parameters_schema(action: Action) -> Any:
    """The schema of its parameters, without the values that it gives for secrets."""
    return redacted_schema(action.parameters_schema)


def options(action: Action, *, seen_by: Principal) -> dict[str, Any]:
    """Its options, without secrets by name, and without those that hold credentials if the caller
    may read no payloads."""
    shown: dict[str, Any] = redacted(action.runtime_options)
    for name in PRIVATE_OPTIONS:
        if name in shown:
            shown[name] = authority.payload(shown[name], of=action.place, seen_by=seen_by)
    return shown
