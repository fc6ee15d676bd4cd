"""The palette: pages, workers, queues and rules, what can be ordered of them, open inquiries, and
executions and tasks by a part of their id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.db.models import Q
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from orchestrator.automation.models import Rule
from orchestrator.console import access, ids, lane_orders, navigation, orders, paging, switches
from orchestrator.console.look import Look
from orchestrator.console.pages import rules, tasks
from orchestrator.core.models import Execution, Worker
from orchestrator.core.words import due
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.shown import inquiries as shown
from orchestrator.queues.models import WorkQueue

MOST = 12
WORKERS_MAX = QUEUES_MAX = RULES_MAX = 5
INQUIRIES_MAX = 200
"""Open inquiries whose questions are looked at."""


class Found(NamedTuple):
    """Something to go to, or to begin."""

    text: str
    hint: str
    url: str


@require_GET
@access.staff_only
def find(request: HttpRequest) -> HttpResponseBase:
    """Find what fits the words of `q`: each word is in the text."""
    look = Look.of(request)
    words = paging.typed(request).lower().split()
    found = [*_pages(look), *_executions(look, words), *_of_workers(look, words)]
    found += _of_queues(look, words)
    found += [*_of_rules(look, words), *_inquiries(look, words)]
    found += [Found(*each) for each in tasks.found(look, words)]
    fitting = [each for each in found if _fits(each, words)][:MOST]
    return JsonResponse({"items": [each._asdict() for each in fitting]})


def _fits(found: Found, words: list[str]) -> bool:
    """Each word is in the text; of an id, each of its parts, with its dashes or without."""
    text = f"{found.text} {found.hint}".lower()
    plain = text.replace("-", "")
    return all(part in text or part in plain for word in words for part in word.split("…") if part)


def _pages(look: Look) -> Iterator[Found]:
    for entry in navigation.entries(look):
        yield Found(entry.title, "page", entry.url)
        if entry.name == "executions":
            for status in ("running", "scheduling", "failed"):
                yield Found(f"Executions: {status}", "page", f"{entry.url}?q=status:{status}")
    yield Found("Admin", "page", reverse("admin:index"))


def _executions(look: Look, words: list[str]) -> Iterator[Found]:
    """Those of which a part of the id was typed."""
    visible = Execution.objects.visible_to(look.user).only("action_ref")
    for row in ids.found(visible, words):
        url = reverse("console:execution", args=[row.pk])
        yield Found(f"Execution {row.pk}", row.action_ref, url)


def _of_workers(look: Look, words: list[str]) -> Iterator[Found]:
    """Workers with one of the words in their names, and what may be ordered of them."""
    if not words or not look.may("workers.read"):
        return
    named = [each for each in look.workers if any(word in each.name.lower() for word in words)]
    for worker in named[:WORKERS_MAX]:
        yield from _of_worker(look, worker)


def _of_worker(look: Look, worker: Worker) -> Iterator[Found]:
    url = reverse("console:worker", args=[worker.name])
    yield Found(f"Worker {worker.name}", worker.host, url)
    for act in orders.of_worker(worker, look).useful:
        yield Found(f"{act.button} …", "asks why", f"{url}#{act.id}")


def _of_queues(look: Look, words: list[str]) -> Iterator[Found]:
    """Queues with one of the words in their names, and what may be ordered of them."""
    if not words:
        return
    named = Q(pk__in=())
    for word in words:
        named |= Q(name__icontains=word)
    for queue in WorkQueue.objects.visible_to(look.user).filter(named)[:QUEUES_MAX]:
        url = lane_orders.url(queue.name)
        yield Found(f"Queue {queue.name}", queue.state, url)
        for act in lane_orders.of_lane(queue, look).useful:
            yield Found(f"{act.button} …", "asks why", f"{url}#{act.id}")


def _of_rules(look: Look, words: list[str]) -> Iterator[Found]:
    """Rules with one of the words in their names, and what may be done to them."""
    if not words or not look.may("rules.read"):
        return
    named = Q(pk__in=())
    for word in words:
        named |= Q(ref__icontains=word)
    for rule in Rule.objects.visible_to(look.user).filter(named)[:RULES_MAX]:
        url = reverse("console:rule", args=[rule.ref])
        yield Found(f"Rule {rule.ref}", rules.state_of(rule), url)
        for act in switches.of_rule(rule, look).useful:
            yield Found(f"{act.button} …", "asks why", f"{url}#{act.id}")


def _inquiries(look: Look, words: list[str]) -> Iterator[Found]:
    """Open inquiries, the first to expire first."""
    if not words or not look.may("inquiries.read"):
        return
    waiting = Inquiry.objects.visible_to(look.user).open().only("pk", "prompt", "expires_at")
    for each in waiting.order_by("expires_at")[:INQUIRIES_MAX]:
        url = reverse("console:inquiry", args=[each.pk])
        yield Found(f"Inquiry: {shown.line(each)}", due(each.expires_at, look.now)[0], url)
