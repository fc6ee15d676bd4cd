"""Filters of the lists of automation. None of them reads a long table to find its choices."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter

from orchestrator.automation.models import Rule, Trigger, TriggerType
from orchestrator.automation.states import EnforcementState
from orchestrator.core import authority
from orchestrator.core.admin.listing import ByKey, CreatedWithin

CHOICE_LIMIT = 500
"""More choices than this would be a page of their own."""


class ByType(DropdownFilter):
    title = "trigger type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        visible = TriggerType.objects.visible_to(authority.of_request(request))
        return [(ref, ref) for ref in visible.values_list("ref", flat=True)[:CHOICE_LIMIT]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        # a list of ids rather than a join: the indexes begin with the trigger
        ids = Trigger.objects.filter(type__ref=self.value()).values_list("pk", flat=True)
        field = "pk" if queryset.model is Trigger else "trigger"
        return queryset.filter(**{f"{field}__in": list(ids[:CHOICE_LIMIT])})


class ByRule(ByKey):
    title = "rule"
    parameter_name = field = "rule"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        visible = Rule.objects.visible_to(authority.of_request(request))
        return [(str(pk), ref) for pk, ref in visible.values_list("pk", "ref")[:CHOICE_LIMIT]]


class ByState(DropdownFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in EnforcementState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case EnforcementState.CREATED:
                return queryset.filter(ended_at__isnull=True)
            case state if state in set(EnforcementState):
                return queryset.filter(state=state)
            case _:
                return queryset


class ByAnswer(DropdownFilter):
    """A filter for the answer to an event: rules not asked yet, some matched, or none matched."""

    title = "rules"
    parameter_name = "rules"
    conditions: ClassVar[dict[str, tuple[str, dict[str, Any]]]] = {
        "unasked": ("not asked yet", {"evaluated_at__isnull": True}),
        "matched": ("some matched", {"matched__gt": 0}),
        "unmatched": ("none matched", {"matched": 0}),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(key, text) for key, (text, _) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        _, condition = self.conditions.get(self.value() or "", ("", {}))
        return queryset.filter(**condition)


class ByEnabled(DropdownFilter):
    title = "enabled"
    parameter_name = "enabled"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "yes"), ("no", "no"), ("retired", "no longer in its pack")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        enabled = Rule.objects.enabled().values("pk")
        match self.value():
            case "yes":
                return queryset.filter(pk__in=enabled)
            case "no":
                return queryset.exclude(pk__in=enabled)
            case "retired":
                return queryset.filter(retired_at__isnull=False)
            case _:
                return queryset


class ReceivedWithin(CreatedWithin):
    title = "time of reception"
    field = "received_at"
