"""Filters of the list of executions. None of them reads the table to find its choices, and those
without an index look at the newest rows only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter

from orchestrator.core import authority
from orchestrator.core.admin.listing import ByKey
from orchestrator.core.models import Action, Pack, Worker
from orchestrator.core.models.execution_sets import may_scan
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason
from orchestrator.core.states import OPEN, TERMINAL, ExecutionStatus

Executions = ExecutionQuerySet


def needs_a_window(chosen: Mapping[str, str]) -> bool:
    """True if these parameters could make the database look for a few rows among all."""
    status = chosen.get("status", "")
    statuses = {"open": OPEN, "": ()}.get(status, {status} & (OPEN | TERMINAL))
    return may_scan(statuses=statuses, reason=chosen.get("reason"), worker=chosen.get("worker"))


class ByStatus(DropdownFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        each = [(status.value, status.value) for status in ExecutionStatus]
        return [("open", "open: not ended yet"), ("ended", "ended: terminal"), *each]

    def queryset(self, request: HttpRequest, queryset: Executions) -> Executions:
        match self.value():
            case "open":
                return queryset.filter(ended_at__isnull=True)
            case "ended":
                return queryset.filter(ended_at__isnull=False)
            case status if status in OPEN | TERMINAL:
                return queryset.in_status(status)
            case _:
                return queryset


class ByReason(DropdownFilter):
    title = "reason"
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(reason.value, reason.value) for reason in Reason]

    def queryset(self, request: HttpRequest, queryset: Executions) -> Executions:
        return queryset.filter(reason=self.value()) if self.value() else queryset


class ByWorker(ByKey):
    title = "worker"
    parameter_name = field = "worker"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        visible = Worker.objects.visible_to(authority.of_request(request))
        return [(str(pk), name) for pk, name in visible.values_list("pk", "name")]


class ByPack(DropdownFilter):
    title = "pack"
    parameter_name = "pack"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        visible = Pack.objects.visible_to(authority.of_request(request))
        return [(name, name) for name in visible.values_list("name", flat=True)]

    def queryset(self, request: HttpRequest, queryset: Executions) -> Executions:
        if not self.value():
            return queryset
        # a list of refs rather than a join: the index is over (action_ref, id)
        refs = Action.objects.filter(pack__name=self.value()).values_list("ref", flat=True)
        return queryset.filter(action_ref__in=list(refs))


class ByAction(DropdownFilter):
    title = "action"
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        visible = Action.objects.visible_to(authority.of_request(request))
        return [(ref, ref) for ref in visible.values_list("ref", flat=True)]

    def queryset(self, request: HttpRequest, queryset: Executions) -> Executions:
        return queryset.filter(action_ref=self.value()) if self.value() else queryset
