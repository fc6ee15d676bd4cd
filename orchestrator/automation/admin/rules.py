"""Rules: list, page, enabling and disabling, and a tester."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.views import ChangeList

from orchestrator.automation import rules
from orchestrator.automation.admin import answers, rule_page, tables
from orchestrator.automation.admin.filters import ByEnabled
from orchestrator.automation.admin.rule_tester import TestForm
from orchestrator.automation.models import Enforcement, Rule
from orchestrator.core import clock
from orchestrator.core.admin import dialogs, render, selected
from orchestrator.core.admin.read_only import AsOfChangeList, ReadOnlyAdmin, Section
from orchestrator.core.admin.selected import Outcome
from orchestrator.core.authority import Principal

HOME = "admin:automation_rule_changelist"


class ReasonForm(dialogs.ReasonForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = "Stored on the rule's page, with your name."


class RuleChangeList(AsOfChangeList):
    """A list whose rows know what they answered last."""

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Rule]:
        queryset: QuerySet[Rule] = super().get_queryset(*args, **kwargs)
        # what a rule says may be long, and no column shows it
        return queryset.defer("revision__criteria", "revision__parameters", "trigger__parameters")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        shown = [rule.pk for rule in self.result_list]
        newest = Enforcement.objects.filter(rule=OuterRef("pk")).order_by("-pk").values("pk")[:1]
        rows = Rule.objects.filter(pk__in=shown).annotate(newest=Subquery(newest)).order_by()
        ids = dict(rows.values_list("pk", "newest"))
        found = Enforcement.objects.defer("problem").in_bulk([id for id in ids.values() if id])
        for rule in self.result_list:
            rule.last_answer = found.get(ids.get(rule.pk))


@admin.register(Rule)
class RuleAdmin(ReadOnlyAdmin):
    view_permission = "rules.read"
    list_display = ("ref", "state", "asked_by", "runs", "owned_by", "answered_last")
    list_filter = (ByEnabled, ("pack", admin.RelatedOnlyFieldListFilter))
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("ref", "trigger__type__ref", "revision__action_ref")
    search_help_text = "Part of a rule, a trigger type or an action"
    actions = ("enable_selected", "disable_selected")
    actions_detail = ("test", "disable", "enable")
    list_disable_select_all = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return RuleChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Rule]:
        queryset: QuerySet[Rule] = super().get_queryset(request)
        return queryset.select_related("trigger__type", "revision", "owner__user", "pack")

    def sections(self, obj: Rule, now: datetime, *, seen_by: Principal) -> list[Section]:
        return rule_page.sections(obj, seen_by=seen_by)

    # --- columns

    @display(description="State")
    def state(self, rule: Rule) -> SafeString:
        return tables.enabled_badge(rule)

    @display(description="Trigger")
    def asked_by(self, rule: Rule) -> SafeString | None:
        return render.link_to(rule.trigger)

    @display(description="Action")
    def runs(self, rule: Rule) -> str:
        return rule.current.action_ref

    @display(description="Owner")
    def owned_by(self, rule: Rule) -> str:
        return str(rule.owner) if rule.owner else "the installation"

    @display(description="Answered last")
    def answered_last(self, rule: Rule) -> SafeString | None:
        last: Enforcement | None = rule.last_answer  # type: ignore[attr-defined]
        if last is None:
            return None
        ago = render.since(last.created_at, rule.as_of)  # type: ignore[attr-defined]
        return format_html("{} {}", render.state_badge(last.state), ago)

    # --- testing

    def has_test_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "rules.read", object_id)

    @action(description="Test", icon="science", permissions=["test"])
    def test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """A page of its own, which shows the answer below what was asked."""
        rule = self.get_object(request, object_id)
        if rule is None:
            return dialogs.gone(request, home=HOME)
        seen_by = self.principal(request)
        asked = (request.POST if request.method == "POST" else request.GET).dict()
        # a link names an event alone, and a missing payload would be shown as null
        form = TestForm({"payload": "", **asked} if asked else None, rule=rule, seen_by=seen_by)
        form.is_valid()
        context = self.admin_site.each_context(request) | {
            "opts": self.opts,
            "original": rule,
            "title": f"Test {rule}",
            "form": form,
            "sections": answers.sections(form.answer) if form.answer else [],
        }
        return TemplateResponse(request, "automation/admin/test.html", context)

    # --- enabling and disabling

    def has_enable_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "rules.enable", object_id)

    def buttons(self, obj: Rule) -> Collection[str]:
        if obj.retired_at is not None:
            return ("test",)
        return ("test", "disable" if obj.is_enabled else "enable")

    @dialogs.button(
        "Disable",
        icon="block",
        permission="enable",
        question="Disable this rule?",
        explanation=(
            "No event that is evaluated from now on asks it. What it answered already goes on. "
            "Installing its pack again does not enable it."
        ),
        submit="Disable",
        form=ReasonForm,
        variant=ActionVariant.WARNING,
    )
    def disable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._switch_one(request, form, object_id, rules.disable, "Disabled")

    @dialogs.button(
        "Enable",
        icon="check_circle",
        permission="enable",
        question="Enable this rule?",
        explanation=(
            "Events that are evaluated from now on ask it, and it runs its action with the "
            "permissions of its owner. Old events do not ask it."
        ),
        submit="Enable",
        form=ReasonForm,
        variant=ActionVariant.SUCCESS,
    )
    def enable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._switch_one(request, form, object_id, rules.enable, "Enabled")

    @selected.action(
        "Disable selected rules …",
        permission="enable",
        needs="rules.enable",
        question="Disable these rules?",
        explanation=(
            "No event that is evaluated from now on asks them. What they answered already goes on."
        ),
        submit="Disable them",
        done="Disabled",
        form=ReasonForm,
    )
    def disable_selected(self, request: HttpRequest, form: Any, rows: list[Rule]) -> Outcome:
        return self._switch_each(request, form, rows, rules.disable, "Disabled")

    @selected.action(
        "Enable selected rules …",
        permission="enable",
        needs="rules.enable",
        question="Enable these rules?",
        explanation=(
            "Events that are evaluated from now on ask them, and each runs its action with the "
            "permissions of its owner."
        ),
        submit="Enable them",
        done="Enabled",
        form=ReasonForm,
    )
    def enable_selected(self, request: HttpRequest, form: Any, rows: list[Rule]) -> Outcome:
        return self._switch_each(request, form, rows, rules.enable, "Enabled")

    def _switch_one(
        self, request: HttpRequest, form: Any, object_id: str, verb: Callable[..., Rule], done: str
    ) -> HttpResponse:
        rule: Any = self.get_object(request, object_id)

        def switch() -> None:
            self._switch(request, form, rule, verb, done)

        return dialogs.do(request, rule, switch, f"{done}: {rule}.", home=HOME)

    def _switch_each(
        self,
        request: HttpRequest,
        form: Any,
        rows: list[Rule],
        verb: Callable[..., Rule],
        done: str,
    ) -> Outcome:
        return selected.do_each(rows, lambda rule: self._switch(request, form, rule, verb, done))

    def _switch(
        self, request: HttpRequest, form: Any, rule: Rule, verb: Callable[..., Rule], done: str
    ) -> None:
        verb(rule.ref, now=clock.now())
        self.log_change(request, rule, f"{done}: {form.cleaned_data['reason']}")
