"""The steps of a task: list, show, and repairs by hand."""

from __future__ import annotations

import enum
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.core import authority
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.given_names import GIVEN_NAME, GivenName
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply
from orchestrator.workflows import engine
from orchestrator.workflows.api.tasks import TransitionPage, audit, known
from orchestrator.workflows.models import Step, TransitionRecord
from orchestrator.workflows.shown import steps
from orchestrator.workflows.shown.steps import StepDetail, StepSummary
from orchestrator.workflows.states import StepState

router = Router(tags=["tasks"])


class StepPage(pages.Page):
    items: list[StepSummary]


class StepQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    state: list[StepState] = Field([], description="May be repeated; any of them matches.")
    name: pages.Text | None = None
    template_step: pages.Text | None = Field(
        None, description="All steps of this template step, such as a batch's workers."
    )


class ActionType(enum.StrEnum):
    """A repair of a step by hand."""

    RESET_FOR_RETRY = "reset_for_retry"
    RESOLVE_MANUALLY = "resolve_manually"
    COMPLETE_MANUALLY = "complete_manually"
    CANCEL = "cancel"


NAMED_IN = {
    ActionType.RESET_FOR_RETRY: "reset_by",
    ActionType.RESOLVE_MANUALLY: "resolved_by",
    ActionType.COMPLETE_MANUALLY: "completed_by",
    ActionType.CANCEL: "cancelled_by",
}
"""The field of each repair for the person behind it."""


class CompletionData(BaseModel):
    """The result to use for the step."""

    model_config = ConfigDict(extra="forbid")

    result: Any = Field(description="The result that its children see.")
    metadata: dict[str, Any] | None = Field(
        None, description="The evidence for it, kept as `completion_metadata` of the step."
    )


class StepChange(BaseModel):
    """A repair. The task continues by itself."""

    model_config = ConfigDict(extra="forbid")

    action_type: ActionType
    reason: pages.Text = Field(min_length=1, max_length=500, description="Stored in the audit.")
    completion_data: CompletionData | None = Field(
        None, description="For `complete_manually` only."
    )
    reset_by: GivenName | None = GIVEN_NAME
    resolved_by: GivenName | None = GIVEN_NAME
    completed_by: GivenName | None = GIVEN_NAME
    cancelled_by: GivenName | None = GIVEN_NAME
    force: bool = Field(
        False,
        description="true to repair it even in flight: its execution is cancelled and fenced out.",
    )

    @model_validator(mode="after")
    def _result_belongs_to_completing(self) -> StepChange:
        completes = self.action_type == ActionType.COMPLETE_MANUALLY
        if completes and self.completion_data is None:
            raise ValueError("complete_manually needs completion_data.result")
        if not completes and self.completion_data is not None:
            raise ValueError(f"{self.action_type} takes no completion_data")
        return self

    @model_validator(mode="after")
    def _name_belongs_to_the_repair(self) -> StepChange:
        for action_type, field in NAMED_IN.items():
            if action_type != self.action_type and getattr(self, field) is not None:
                raise ValueError(
                    f"{self.action_type} takes {NAMED_IN[self.action_type]}, not {field}"
                )
        return self

    @property
    def stored_reason(self) -> str:
        """The reason, and the name on whose behalf it happens. Raises ReasonMissing."""
        return engine.on_behalf_of(getattr(self, NAMED_IN[self.action_type]), self.reason)


@router.get(
    "/{task_uuid}/workflow_steps",
    auth=needs("tasks.read"),
    response=documented(404, 422, _200=StepPage),
)
def list_steps(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[StepQuery]
) -> HttpResponse:
    """The steps of a task, in the order of their creation."""
    refuse_unknown_parameters(request, StepQuery)
    rows = Step.objects.without_contents().filter(task=known(request, task_uuid))
    if query.state:
        rows = rows.filter(state__in=query.state)
    wanted = query.model_dump(include={"name", "template_step"}, exclude_none=True)
    page, cursor = pages.oldest_first(rows.filter(**wanted), query, key=UUID)
    views = steps.views(page, now=request.auth.now, seen_by=request.auth.principal)
    items = [steps.summary(view) for view in views]
    return reply(StepPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get(
    "/{task_uuid}/workflow_steps/{step_uuid}",
    auth=needs("tasks.read"),
    response=documented(404, _200=StepDetail),
)
def get_step(request: AuthenticatedRequest, task_uuid: UUID, step_uuid: UUID) -> HttpResponse:
    """One step, with its result and its executions."""
    return _reply(request, _known_step(request, task_uuid, step_uuid))


@router.patch(
    "/{task_uuid}/workflow_steps/{step_uuid}",
    auth=needs("steps.repair"),
    response=documented(404, 409, _200=StepDetail),
)
def change_step(
    request: AuthenticatedRequest, task_uuid: UUID, step_uuid: UUID, change: Body[StepChange]
) -> HttpResponse:
    """Reset, resolve, complete or cancel a step by hand. 409 in a final state.

    The actor is the caller; `reset_by`, `resolved_by`, `completed_by` or `cancelled_by` is kept
    with the reason.

    A result may decide what later steps do: 403 unless the caller may run each action that the
    template names.
    """
    step = _known_step(request, task_uuid, step_uuid, "steps.repair")
    try:
        _repair(request, step, change)
    except engine.ResultRefused as error:
        pointer = "/completion_data/result"
        raise problems.invalid([FieldProblem(pointer=pointer, message=str(error))]) from None
    except engine.ReasonMissing as error:
        raise problems.invalid([FieldProblem(pointer="/reason", message=str(error))]) from None
    return _reply(request, _known_step(request, task_uuid, step_uuid, "steps.repair"))


def _repair(request: AuthenticatedRequest, step: Step, change: StepChange) -> None:
    common: dict[str, Any] = {
        "reason": change.stored_reason,
        "force": change.force,
        "actor": request.auth.name,
        "now": request.auth.now,
    }
    match change.action_type:
        case ActionType.RESET_FOR_RETRY:
            engine.reset_for_retry(step.pk, **common)
        case ActionType.RESOLVE_MANUALLY:
            engine.resolve_manually(step.pk, **common)
        case ActionType.CANCEL:
            engine.cancel_step(step.pk, **common)
        case ActionType.COMPLETE_MANUALLY:
            given = dict(change.completion_data) if change.completion_data else {"result": None}
            engine.complete_manually(step.pk, principal=request.auth.principal, **given, **common)


@router.get(
    "/{task_uuid}/workflow_steps/{step_uuid}/audit",
    auth=needs("tasks.read"),
    response=documented(404, 422, _200=TransitionPage),
)
def get_step_audit(
    request: AuthenticatedRequest,
    task_uuid: UUID,
    step_uuid: UUID,
    query: Query[pages.PageQuery],
) -> HttpResponse:
    """Every transition of the step, oldest first."""
    step = _known_step(request, task_uuid, step_uuid)
    return audit(request, TransitionRecord.objects.filter(step=step), query)


def _known_step(
    request: AuthenticatedRequest,
    task_uuid: UUID,
    step_uuid: UUID,
    permission: str = "tasks.read",
) -> Step:
    step = (
        Step.objects.select_related("task__template")
        .filter(pk=step_uuid, task_id=task_uuid)
        .first()
    )
    if step is None or not authority.may(request.auth.principal, permission, step.place):
        raise problems.not_found(f"Task {task_uuid} has no step with the id {step_uuid}")
    return step


def _reply(request: AuthenticatedRequest, step: Step) -> HttpResponse:
    principal = request.auth.principal
    (view,) = steps.views([step], now=request.auth.now, seen_by=principal)
    return reply(steps.detail(view, step.task.template, seen_by=principal))
