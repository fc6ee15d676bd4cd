"""Policies: list and page with their buckets; enabling and disabling."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.views import ChangeList

from orchestrator.core import clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section, SummarizedChangeList
from orchestrator.core.authority import Principal
from orchestrator.policies import changes
from orchestrator.policies.models import Policy, PolicyBucket
from orchestrator.policies.shown import policies as shown

HOME = "admin:policies_policy_changelist"
BUCKETS_SHOWN = 100


class PolicyChangeList(SummarizedChangeList):
    """A list whose rows know what is taken of them."""

    def summaries(self, rows: list[Any]) -> Iterable[Any]:
        return shown.all_of(rows, now=self.as_of)


@admin.register(Policy)
class PolicyAdmin(ReadOnlyAdmin):
    view_permission = "policies.read"
    list_display = ("ref", "status", "says", "concerns", "taken", "waits")
    list_filter = ("kind", "scope")
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("ref", "target")
    search_help_text = "Part of a name, or of what it limits"
    actions_detail = ("enable", "disable")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PolicyChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        queryset: QuerySet[Policy] = super().get_queryset(request)
        return queryset.filter(retired_at__isnull=True).select_related("pack")

    def sections(self, obj: Policy, now: datetime, *, seen_by: Principal) -> list[Section]:
        facts = render.facts(shown.situation(shown.one(obj, now=now)))
        buckets = PolicyBucket.objects.filter(policy=obj).select_related("policy")
        rows = [
            (
                render.mono(each.key or "-"),
                each.taken,
                each.free,
                each.waiting,
                render.moment(each.next_due_at),
                render.moment(each.used_at),
            )
            for each in shown.buckets(list(buckets.order_by("-used_at")[:BUCKETS_SHOWN]), now=now)
        ]
        table = render.table(("Key", "Taken", "Free", "Waiting", "Next due", "Last start"), rows)
        title = f"Buckets (the last {BUCKETS_SHOWN})" if len(rows) == BUCKETS_SHOWN else "Buckets"
        return [Section(facts=facts), Section(title=title, body=table)]

    # --- columns

    @display(description="State")
    def status(self, policy: Policy) -> SafeString:
        return render.state_badge(policy.state)

    @display(description="Limit")
    def says(self, policy: Policy) -> str:
        return policy.text

    @display(description="Of")
    def concerns(self, policy: Policy) -> str:
        return shown.about(_summary(policy))

    @display(description="Held")
    def taken(self, policy: Policy) -> str:
        is_held = policy.kind == Policy.Kind.CONCURRENCY
        return str(_summary(policy).held) if is_held else "-"

    @display(description="Waiting")
    def waits(self, policy: Policy) -> int:
        return _summary(policy).waiting

    # --- orders

    def has_order_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "policies.change", object_id)

    def buttons(self, obj: Policy) -> Collection[str]:
        return ("disable",) if obj.enabled else ("enable",)

    @dialogs.button(
        "Enable",
        icon="play_arrow",
        permission="order",
        question="Enable this policy?",
        explanation="It limits what starts from now on. What runs already is counted, and goes on.",
        submit="Enable",
        variant=ActionVariant.SUCCESS,
    )
    def enable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._switch(request, form, object_id, is_on=True)

    @dialogs.button(
        "Disable",
        icon="pause",
        permission="order",
        question="Disable this policy?",
        explanation="It limits nothing any more: what waits for it starts.",
        submit="Disable",
        variant=ActionVariant.WARNING,
    )
    def disable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._switch(request, form, object_id, is_on=False)

    def _switch(
        self, request: HttpRequest, form: Any, object_id: str, *, is_on: bool
    ) -> HttpResponse:
        policy: Any = self.get_object(request, object_id)
        done = "Enabled" if is_on else "Disabled"

        def order() -> None:
            changes.change(policy.ref, {"enabled": is_on}, now=clock.now())
            self.log_change(request, policy, f"{done}: {form.cleaned_data['reason']}")

        return dialogs.do(request, policy, order, f"{done}: {policy}.", home=HOME)


def _summary(policy: Policy) -> shown.PolicyOut:
    summary: shown.PolicyOut = policy.summary  # type: ignore[attr-defined]
    return summary
