"""Queues: list and page with their figures; pausing, resuming, retiring."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.views import ChangeList

from orchestrator.core import clock, words
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section, SummarizedChangeList
from orchestrator.core.authority import Principal
from orchestrator.queues import changes
from orchestrator.queues.admin import gates
from orchestrator.queues.models import WorkQueue
from orchestrator.queues.shown import queues as shown

HOME = "admin:queues_workqueue_changelist"


class QueueChangeList(SummarizedChangeList):
    """A list whose rows know their figures."""

    def summaries(self, rows: list[Any]) -> Iterable[Any]:
        return shown.all_of(rows, now=self.as_of)


@admin.register(WorkQueue)
class QueueAdmin(ReadOnlyAdmin):
    view_permission = "queues.read"
    list_display = ("name", "status", "waits", "runs", "age", "rate", "servers", "reason")
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("name",)
    search_help_text = "Part of a name"
    actions_detail = ("pause", "resume", "retire")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return QueueChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkQueue]:
        queryset: QuerySet[WorkQueue] = super().get_queryset(request)
        return queryset.select_related("action", "pack", "gate")

    def sections(self, obj: WorkQueue, now: datetime, *, seen_by: Principal) -> list[Section]:
        one = shown.detail(obj, now=now)
        boxes = [
            Section(facts=render.facts(shown.situation(one, now))),
            Section(title="Rules", facts=render.facts(shown.rules(one))),
        ]
        if one.gate is not None:
            boxes.append(Section(title="Gate", facts=render.facts(shown.gate_facts(one))))
            boxes += gates.sections(obj.gate, now)
        rows = [
            (
                render.moment(event.at),
                event.kind,
                event.revision,
                event.actor,
                render.message(event.reason),
            )
            for event in one.events
        ]
        table = render.table(("At", "Event", "Revision", "By", "Reason"), rows)
        return [*boxes, Section(title="Events", body=table)]

    # --- columns

    @display(description="State")
    def status(self, queue: WorkQueue) -> SafeString:
        return render.state_badge(queue.state)

    @display(description="Waiting")
    def waits(self, queue: WorkQueue) -> int:
        return _summary(queue).waiting

    @display(description="Running")
    def runs(self, queue: WorkQueue) -> str:
        summary = _summary(queue)
        limit = "" if summary.max_running is None else f" of {summary.max_running}"
        return f"{summary.running}{limit}"

    @display(description="Oldest")
    def age(self, queue: WorkQueue) -> str | None:
        summary = _summary(queue)
        return words.span(summary.oldest_seconds) if summary.waiting else None

    @display(description="Ends a minute")
    def rate(self, queue: WorkQueue) -> str:
        return f"{_summary(queue).per_minute:g}"

    @display(description="Served by")
    def servers(self, queue: WorkQueue) -> str:
        return ", ".join(map(shown.served, _summary(queue).served_by)) or "nobody"

    @display(description="Why")
    def reason(self, queue: WorkQueue) -> SafeString | str:
        return render.message(shown.why(_summary(queue)))

    # --- orders

    def has_order_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "queues.change", object_id)

    def buttons(self, obj: WorkQueue) -> Collection[str]:
        if obj.retired_at is not None:
            return ()
        return ("resume" if obj.is_paused else "pause", "retire")

    @dialogs.button(
        "Pause",
        icon="pause",
        permission="order",
        question="Pause this queue?",
        explanation=(
            "Nothing more of it is given to workers; what they have goes on. It accepts new "
            "executions, which wait. Their deadlines do not."
        ),
        submit="Pause",
        variant=ActionVariant.WARNING,
    )
    def pause(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._order(request, form, object_id, changes.pause, "Paused")

    @dialogs.button(
        "Resume",
        icon="play_arrow",
        permission="order",
        question="Resume this queue?",
        explanation="What waits is given to the workers that serve it.",
        submit="Resume",
        variant=ActionVariant.SUCCESS,
    )
    def resume(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._order(request, form, object_id, changes.resume, "Resumed")

    @dialogs.button(
        "Retire",
        icon="inventory_2",
        permission="order",
        question="Retire this queue?",
        explanation=(
            "It accepts nothing more. Once none of its executions is open, it is out of use; until "
            "then this is refused, and to be repeated."
        ),
        submit="Retire",
        variant=ActionVariant.DANGER,
    )
    def retire(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._order(request, form, object_id, changes.retire, "Retired")

    def _order(
        self,
        request: HttpRequest,
        form: Any,
        object_id: str,
        verb: Callable[..., WorkQueue],
        done: str,
    ) -> HttpResponse:
        queue: Any = self.get_object(request, object_id)
        actor, reason = dialogs.actor(request), form.cleaned_data["reason"]

        def order() -> None:
            verb(queue.name, reason=reason, actor=actor, now=clock.now())
            self.log_change(request, queue, f"{done}: {reason}")

        return dialogs.do(request, queue, order, f"{done}: {queue}.", home=HOME)


def _summary(queue: WorkQueue) -> shown.QueueSummary:
    summary: shown.QueueSummary = queue.summary  # type: ignore[attr-defined]
    return summary
