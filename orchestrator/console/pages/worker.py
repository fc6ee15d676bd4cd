"""A worker: its slots now, what it was ordered, its lives."""

from __future__ import annotations

from django.http import HttpRequest

from orchestrator.console import access, draw, heat, orders
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.console.pages.executions import executions_url
from orchestrator.core import search
from orchestrator.core.fleet import UnknownWorker
from orchestrator.core.models import Worker, WorkerEvent
from orchestrator.core.shown import workers as shown

EVENTS_MAX = 50


def found(look: Look, name: str, permission: str = "workers.read") -> Worker:
    """The worker of this name, retired or not. Raises UnknownWorker."""
    worker = Worker.objects.filter(name=name).first()
    if worker is None or not look.may(permission, worker.place):
        raise UnknownWorker(f"No worker has the name {name}")
    return worker


@access.page("worker", needs="workers.read", topics="execution,worker,presence,clock")
def show(look: Look, request: HttpRequest, name: str) -> Context:
    worker = found(look, name)
    look.worker_id = worker.pk
    offered = orders.of_worker(worker, look)
    draw_row = heat.linked if look.may("executions.read") else heat.plain
    row = draw_row(worker, look)
    out = shown.whole(worker, load=sum(row.load_now), now=look.now)
    return {
        "title": worker.name,
        "here": "fleet",
        "worker": worker,
        "row": row,
        "executions_of": executions_url(search.term("worker", name))
        if look.may("executions.read")
        else "",
        "held": look.held.get(worker.pk, []),
        "situation": draw.facts(shown.situation(out, look.now), seen_by=look.user),
        "offers": draw.facts(shown.offers(out), seen_by=look.user),
        "process": draw.facts(shown.process(out), seen_by=look.user),
        "events": WorkerEvent.objects.of(worker.pk)[:EVENTS_MAX],
        "dialogs": offered.allowed,
        "orders": offered.useful,
    }
