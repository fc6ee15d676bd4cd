"""Steps: what each waits for, what was tried, and what an operator can do to it."""

from __future__ import annotations

from collections.abc import Callable
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

from orchestrator.core import clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.listing import id_starts_with
from orchestrator.core.admin.read_only import AsOfChangeList, ReadOnlyAdmin, Section
from orchestrator.workflows import engine
from orchestrator.workflows.admin import task_page
from orchestrator.workflows.models import Step
from orchestrator.workflows.shown import steps
from orchestrator.workflows.states.steps import IN_FLIGHT
from orchestrator.workflows.states.steps import KINDS as STEP_KINDS

HOME = "admin:workflows_step_changelist"


class RepairForm(dialogs.ReasonForm):
    """A reason, and for a step that is being run whether to stop it."""

    form_before_template = "workflows/admin/step_named.html"

    force = forms.BooleanField(
        required=False,
        label="Stop what runs",
        widget=UnfoldBooleanSwitchWidget,
        help_text="Its execution is cancelled, and whatever comes of it no longer counts.",
    )

    def __init__(self, *args: Any, object_id: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, object_id=object_id, **kwargs)
        self.step = Step.objects.without_contents().filter(pk=object_id).first()
        if self.step is None or self.step.state not in IN_FLIGHT:
            del self.fields["force"]

    def get_before_template_context(
        self, request: HttpRequest, object_id: Any = None
    ) -> dict[str, Any]:
        """Which step it is: the dialog may have been opened on a page of many."""
        return {"step": self.step}


class ResultForm(RepairForm):
    """A reason, and the result that the step could not give."""

    result = forms.JSONField(
        required=False,
        initial=dict,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 6}),
        help_text="JSON: what the steps after it see as its result. Empty means null.",
    )
    field_order = ("result", "reason", "force")


class StepChangeList(AsOfChangeList):
    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Step]:
        queryset: QuerySet[Step] = super().get_queryset(*args, **kwargs)
        return queryset.defer("result", "error", "task__context")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        now = clock.now()
        views = steps.views(list(self.result_list), now=now)
        for step, view in zip(self.result_list, views, strict=True):
            step.view = view


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin):
    list_display = ("label", "of_task", "state_label", "tried", "blocked_by")
    list_select_related = ("task",)
    list_filter = ("state", "kind")
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of the id of a step or of its task"
    actions_detail = ("reset", "resolve", "complete")
    actions_row = actions_detail

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return StepChangeList

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Of one task in its order; of all the newest first."""
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

    def sections(self, obj: Step, now: datetime) -> list[Section]:
        return task_page.of_step(obj, now)

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
        return task_page.attempts(step)

    @display(description="Blocked by")
    def blocked_by(self, step: Step) -> str:
        return step.view.blocked_by or "-"  # type: ignore[attr-defined]

    # --- repairs

    def has_repair_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_change(request)

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """Only the buttons of what is possible now."""
        found = self.get_object(request, object_id)
        if found is None or found.task.is_terminal:
            return []
        allowed: list[Any] = super().get_actions_detail(request, object_id)
        verbs = {verb for verb, _ in task_page.verbs_of(found)}
        return [each for each in allowed if each.action_name.rpartition("_")[2] in verbs]

    @dialogs.button(
        "Reset for retry",
        icon="replay",
        permission="repair",
        question="Try this step again?",
        explanation=(
            "Its attempts count from 0 again, without a backoff. The task goes on by itself."
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
            "It ends without a result, and the steps after it begin. This cannot be undone."
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
        )

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
