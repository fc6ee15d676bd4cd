"""Workers: their status, heartbeat, load and history."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.views import ChangeList

from orchestrator.core import fleet, words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import AsOfChangeList, Section
from orchestrator.core.admin.worker_orders import WorkerOrders
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution, Worker, WorkerEvent
from orchestrator.core.models.fleet import KINDS
from orchestrator.core.shown import workers as shown
from orchestrator.core.states import ExecutionStatus

HELD_LIMIT = 50
HISTORY_LIMIT = 50


class StillKnown(admin.SimpleListFilter):
    """A filter that hides retired workers by default."""

    title = "retired"
    parameter_name = "retired"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Retired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Worker]) -> QuerySet[Worker]:
        if self.value() == "yes":
            return queryset.filter(retired_at__isnull=False)
        # the address of a page must stay valid, retired or not
        listing = request.resolver_match and request.resolver_match.url_name
        is_list = listing == "orchestrator_worker_changelist"
        return queryset.filter(retired_at__isnull=True) if is_list else queryset


class WorkerChangeList(AsOfChangeList):
    """A list whose rows have their load, counted for all in two queries."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        held, running = Execution.objects.load_by_worker(), Execution.objects.running_by_worker()
        for worker in self.result_list:
            worker.running = running.get(worker.pk, 0)
            worker.waiting = held.get(worker.pk, 0) - worker.running


@admin.register(Worker)
class WorkerAdmin(WorkerOrders):
    list_display = (
        "name",
        "status_label",
        "cordon_label",
        "heartbeat",
        "load",
        "runtime_names",
        "label_texts",
        "lacks",
        "pauses",
        "incarnation",
        "process",
        "celery_version",
    )
    list_filter = ("status", "cordoned", StillKnown)
    list_filter_submit = False
    search_fields = ("name", "host")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return WorkerChangeList

    @display(description="Status", label=KINDS)
    def status_label(self, worker: Worker) -> str:
        return worker.status

    @display(description="Cordon")
    def cordon_label(self, worker: Worker) -> SafeString | str:
        return render.badge("cordoned", "warning") if worker.cordoned else "-"

    @display(description="Heartbeat")
    def heartbeat(self, worker: Worker) -> SafeString | str:
        now: datetime = worker.as_of  # type: ignore[attr-defined]
        return format_html(
            "{} {}",
            render.state_badge(worker.heartbeat_state(now)),
            render.since(worker.heartbeat_at, now) or "",
        )

    @display(description="Load")
    def load(self, worker: Worker) -> str:
        running = f"{worker.running} of {worker.capacity} slots"  # type: ignore[attr-defined]
        waiting = worker.waiting  # type: ignore[attr-defined]
        return f"{running}, {waiting:,} waiting" if waiting else running

    @display(description="Runtimes")
    def runtime_names(self, worker: Worker) -> str:
        return ", ".join(map(str, worker.runtimes)) or "-"

    @display(description="Lacks")
    def lacks(self, worker: Worker) -> str:
        return ", ".join(worker.missing_code) or "-"

    @display(description="Pauses")
    def pauses(self, worker: Worker) -> str:
        now: datetime = worker.as_of  # type: ignore[attr-defined]
        paused = fleet.paused(worker.queue_pauses, now=now)
        return "; ".join(fleet.pauses_of(paused, now=now)) or "-"

    @display(description="Labels")
    def label_texts(self, worker: Worker) -> str:
        return _labels(worker) or "-"

    @display(description="Celery")
    def celery_version(self, worker: Worker) -> str:
        return worker.version or "-"

    @display(description="Host, pid")
    def process(self, worker: Worker) -> str:
        return _process(worker) or "-"

    def sections(self, obj: Worker, now: datetime, *, seen_by: Principal) -> list[Section]:
        worker = shown.one(obj, now=now)
        rows = [
            (
                render.link_to(execution, render.mono(execution.pk)),
                render.state_badge(execution.status),
                execution.action_ref,
                execution.attempt,
                execution.worker_incarnation,
                _due(execution, now),
            )
            for execution in Execution.objects.held_by(obj)
            .visible_to(seen_by)
            .defer("parameters", "result")[:HELD_LIMIT]
        ]
        headers = ["Execution", "Status", "Action", "Attempt", "Life", "Due"]
        every = f"{reverse('admin:orchestrator_execution_changelist')}?worker={obj.pk}"
        return [
            Section(
                facts=render.facts(shown.situation(worker, now)),
                kind=words.kind_of("stale" if worker.heartbeat == "stale" else obj.status),
            ),
            Section(title="Offers", facts=render.facts(shown.offers(worker)), wide=False),
            Section(title="Process", facts=render.facts(shown.process(worker)), wide=False),
            Section(
                title=f"Holds {worker.load} now",
                body=format_html(
                    '{}<p class="m-foot">{}</p>',
                    render.table(headers, rows) if rows else "",
                    render.link(every, "All executions whose latest attempt it got"),
                ),
            ),
            Section(title="History", body=_history(obj)),
        ]


def _history(worker: Worker) -> SafeString | str:
    rows = [
        (render.moment(event.at), event.kind, event.incarnation, event.actor, event.reason)
        for event in WorkerEvent.objects.of(worker.pk)[:HISTORY_LIMIT]
    ]
    return render.table(["At", "Event", "Life", "By", "Reason"], rows) if rows else ""


def _labels(worker: Worker) -> str:
    return words.labels(worker.labels)


def _process(worker: Worker) -> str:
    return ", ".join(str(part) for part in (worker.host, worker.pid) if part)


def _due(execution: Execution, now: datetime) -> SafeString | None:
    scheduled = execution.status == ExecutionStatus.SCHEDULED
    at = execution.start_by if scheduled else execution.run_deadline_at
    if at is None:
        return None
    verb = "start" if scheduled else "end"
    return format_html("{} {}", verb, render.due(at, now))
