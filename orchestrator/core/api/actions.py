"""Actions: what can be run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Path, Router
from pydantic import BaseModel, Field

from orchestrator.core.api import problems
from orchestrator.core.api.access import AuthenticatedRequest
from orchestrator.core.api.pages import Text, each
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import Action
from orchestrator.core.shown.values import Shown

router = Router(tags=["actions"])


class PackOut(Shown):
    """Where an action comes from."""

    name: str
    version: str


class ActionSummary(Shown):
    """An action as the list shows it."""

    ref: str
    description: str
    runtime: str
    enabled: bool
    pack: PackOut
    updated_at: datetime


class ActionDetail(ActionSummary):
    """An action with all that is declared of it."""

    parameters_schema: Any = Field(description="JSON Schema, 2020-12.")
    entry_point: Any
    runtime_options: Any
    limits: Any
    timeout_seconds: float | None = Field(description="null: the installation's default.")
    queue_ttl_ms: int | None
    scheduled_timeout_seconds: float | None
    worker_selector: dict[str, str]
    retry_policy: Any
    idempotent: bool
    on_no_worker: Action.OnNoWorker


class ActionList(BaseModel):
    """All actions, by their references."""

    items: list[ActionSummary]


@router.get("", response=documented(_200=ActionList))
def list_actions(request: AuthenticatedRequest) -> HttpResponse:
    """All actions, by their references."""
    rows = Action.objects.select_related("pack").order_by("ref")
    return reply(ActionList.model_construct(items=each(ActionSummary, rows)))


@router.get("/{ref}", response=documented(404, _200=ActionDetail))
def get_action(request: AuthenticatedRequest, ref: Annotated[Text, Path()]) -> HttpResponse:
    """One action, with the schema of its parameters."""
    action = Action.objects.select_related("pack").filter(ref=ref).first()
    if action is None:
        raise problems.not_found(f"No action is called {ref[:130]!r}")
    return reply(ActionDetail.model_validate(action))
