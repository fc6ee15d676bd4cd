"""Steps: list, page, and repairs by an operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldBooleanSwitchWidget

from orchestrator.core import authority, clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.listing import id_starts_with
from orchestrator.core.admin.read_only import BoundedChangeList, ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal
from orchestrator.core.json_field import JSONField
from orchestrator.workflows import engine
from orchestrator.workflows.admin import task_page
from orchestrator.workflows.models import Step
from orchestrator.workflows.shown import steps
from orchestrator.workflows.states.steps import IN_FLIGHT
from orchestrator.workflows.states.steps import KINDS as STEP_KINDS

HOME = "admin:workflows_step_changelist"


class RepairForm(dialogs.ReasonForm):
    """A reason, and for a step in flight the choice to stop its execution."""

    form_before_template = "workflows/admin/step_named.html"

    force = forms.BooleanField(
        required=False,
        label="Stop its execution",
        widget=UnfoldBooleanSwitchWidget,
        help_text="Its execution is cancelled, and its result is ignored.",
    )

    def __init__(self, *args: Any, object_id: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, object_id=object_id, **kwargs)
        self.step = Step.objects.without_contents().filter(pk=object_id).first()
        if self.step is None or self.step.state not in IN_FLIGHT:
            del self.fields["force"]

    def get_before_template_context(
        self, request: HttpRequest, object_id: Any = None
    ) -> dict[str, Any]:
        """Name the step: the dialog may have been opened on a page with many."""
        return {"step": self.step}


class ResultForm(RepairForm):
    """A reason, and the result to use for the step."""

    result = JSONField(
        required=False,
        initial=dict,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 6}),
        help_text="JSON: the result that the steps after it see. Empty means null.",
    )
    field_order = ("result", "reason", "force")


class StepChangeList(BoundedChangeList):
    """A list that looks at a bounded number of rows, unless it is that of one task."""

    to_look_further = "open their tasks"

    def is_slow(self, chosen: Mapping[str, str]) -> bool:
        unindexed = {"state__exact", "kind__exact", "template_step"}
        return "task" not in chosen and bool(chosen.keys() & unindexed)

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Step]:
        queryset: QuerySet[Step] = super().get_queryset(*args, **kwargs)
        return queryset.defer("result", "error", "task__context")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        now = clock.now()
        principal = authority.of_request(request)
        views = steps.views(list(self.result_list), now=now, seen_by=principal)
        for step, view in zip(self.result_list, views, strict=True):
            step.view = view


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin):
    view_permission = "tasks.read"
    list_display = ("label", "of_task", "state_label", "tried", "blocked_by")
    list_select_related = ("task",)
    list_filter = ("state", "kind")
    linked_lookups = ("task", "template_step")
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of the id of a step or of its task"
    actions_detail = ("reset", "resolve", "complete", "cancel")
    actions_row = actions_detail

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return StepChangeList

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Sort the steps of one task in its order, all steps newest first."""
        return ("pk",) if "task" in request.GET else ("-pk",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Step]:
        queryset: QuerySet[Step] = super().get_queryset(request)
        return queryset.select_related("task__template")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Step], search_term: str
    ) -> tuple[QuerySet[Step], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        by_id, by_task = id_starts_with(term), id_starts_with(term, field="task__id")
        if by_id is None or by_task is None:
            return queryset.none(), False
        return queryset.filter(Q(by_id) | Q(by_task)), False

    def sections(self, obj: Step, now: datetime, *, seen_by: Principal) -> list[Section]:
        return task_page.of_step(obj, now, seen_by=seen_by)

    # --- columns

    @display(description="Step")
    def label(self, step: Step) -> str:
        return step.name

    @display(description="Task")
    def of_task(self, step: Step) -> SafeString | None:
        return render.link_to(step.task, render.short_id(step.task_id))

    @display(description="State", label=STEP_KINDS)
    def state_label(self, step: Step) -> str:
        return step.state

    @display(description="Attempts")
    def tried(self, step: Step) -> str:
        return steps.attempts(step)

    @display(description="Blocked by")
    def blocked_by(self, step: Step) -> str:
        return step.view.blocked_by or "-"  # type: ignore[attr-defined]

    # --- repairs

    def has_repair_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "steps.repair", object_id)

    def buttons(self, obj: Step) -> Collection[str]:
        return () if obj.task.is_terminal else {verb for verb, _ in task_page.verbs_of(obj)}

    @dialogs.button(
        "Reset for retry",
        icon="replay",
        permission="repair",
        question="Try this step again?",
        explanation=(
            "Its attempts count from 0 again, without a backoff. The task continues by itself."
        ),
        submit="Reset",
        form=RepairForm,
        variant=ActionVariant.PRIMARY,
    )
    def reset(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._repair(request, form, object_id, engine.reset_for_retry, "is tried again")

    @dialogs.button(
        "Resolve manually",
        icon="task_alt",
        permission="repair",
        question="Count this step as satisfied?",
        explanation=(
            "It ends without a result, and the steps after it start. This cannot be undone."
        ),
        submit="Resolve",
        form=RepairForm,
    )
    def resolve(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._repair(request, form, object_id, engine.resolve_manually, "is resolved")

    @dialogs.button(
        "Complete manually",
        icon="edit_note",
        permission="repair",
        question="Complete this step by hand?",
        explanation="The steps after it see the result that you give. This cannot be undone.",
        submit="Complete",
        form=ResultForm,
    )
    def complete(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._repair(
            request,
            form,
            object_id,
            engine.complete_manually,
            "is complete",
            result=form.cleaned_data["result"],
            principal=self.principal(request),
        )

    @dialogs.button(
        "Cancel",
        icon="cancel",
        permission="repair",
        question="Cancel this step?",
        explanation=(
            "It ends without its work, and the steps after it do not start. The rest of the task "
            "goes on; then the task waits until somebody closes it. This cannot be undone."
        ),
        submit="Cancel the step",
        form=RepairForm,
        variant=ActionVariant.DANGER,
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._repair(request, form, object_id, engine.cancel_step, "is cancelled")

    def _repair(
        self,
        request: HttpRequest,
        form: Any,
        object_id: str,
        verb: Callable[..., Step],
        done: str,
        **values: Any,
    ) -> HttpResponse:
        step = self.get_object(request, object_id)

        def repair() -> None:
            verb(
                step.pk,
                reason=form.cleaned_data["reason"],
                force=form.cleaned_data.get("force", False),
                actor=dialogs.actor(request),
                now=clock.now(),
                **values,
            )
            self.log_change(request, step, f"By hand: {step.name} {done}.")

        name = step.name if step else ""
        return dialogs.do(request, step, repair, f"{name} {done}.", home=HOME)
