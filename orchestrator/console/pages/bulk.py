"""Bulk orders: the list, one of them with its receipt, and what a new one would be about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.bulk import matching, ordering, verbs
from orchestrator.bulk.matching import EXECUTIONS
from orchestrator.bulk.models import BulkOrder, Refusal
from orchestrator.bulk.ordering import Foreseen, Wish
from orchestrator.bulk.shown import orders as shown
from orchestrator.bulk.verbs import ORDER, Verb
from orchestrator.console import access, draw, paging
from orchestrator.console.access import Context
from orchestrator.console.acts import REASON_MAX, Dialog
from orchestrator.console.look import Look
from orchestrator.console.paging import ROWS
from orchestrator.core import cursors
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Execution
from orchestrator.core.search import NotUnderstood

SAMPLE = 10
TYPED_FROM = 100
"""For more rows than this, their number has to be typed."""


class WrongRows(MusterError):
    """The form names rows that cannot be."""


REFUSED = (
    NotUnderstood,
    matching.SearchNeeded,
    matching.MatchesTooMany,
    matching.LooksTooLong,
    WrongRows,
)


@dataclass(frozen=True)
class Row:
    """An order as the list shows it."""

    order: BulkOrder
    title: str
    about: str
    progress: str


@access.page("bulk", needs="bulk.read", topics="bulk,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """The newest orders."""
    rows, older = cursors.newest(
        BulkOrder.objects.visible_to(look.user),
        limit=ROWS,
        below=paging.cursor(request.GET.get(paging.BEFORE, ""), UUID),
    )
    return {
        "title": "Bulk orders",
        "here": "bulk",
        "rows": [Row(each, title(each), shown.about(each), shown.progress(each)) for each in rows],
        "older": older,
        "may_order": look.may(ORDER),
    }


@access.page("bulk_order", needs="bulk.read", topics="clock")
def show(look: Look, request: HttpRequest, id: UUID) -> Context:
    """An order: how far it is, who ordered it and why, and what was refused."""
    order = ordering.found(id, look.user)
    refusals, more = _refusals(request, order)
    return {
        "title": title(order),
        "here": "bulk",
        "topics": f"bulk:{id},clock" if order.is_open else f"bulk:{id}",
        "order": order,
        "noun": shown.noun(order),
        "rate": order.rate(look.now),
        "situation": draw.facts(shown.situation(order, look.now), seen_by=look.user),
        "times": draw.facts(shown.times(order, look.now), seen_by=look.user),
        "kinds": shown.why_refused(order) if order.refused else (),
        "refusals": refusals,
        "more": more,
        "is_execution": shown.noun(order) == EXECUTIONS.name and look.may("executions.read"),
        "stop": stop_dialog(order) if look.may(ORDER) else None,
    }


@access.page("bulk_new", needs=ORDER, topics="")
def show_new(look: Look, request: HttpRequest) -> Context:
    """The rows that an order would be about, counted, and the dialog that orders it."""
    verb = verbs.named(request.GET.get("verb", ""))
    query = request.GET.get("q", "")
    try:
        ids = chosen(request.GET.getlist("id"))
        found = ordering.foresee(Wish(verb.name, query, ids), principal=look.user, now=look.now)
    except REFUSED as error:
        return _plan(verb, query) | {"problem": str(error)}
    return _plan(verb, query) | {
        "found": found,
        "ids": ids,
        "sample": _sample(found),
        "left_out": max(0, found.matched - SAMPLE),
        "typed_from": TYPED_FROM,
        "must_type": found.matched > TYPED_FROM,
        "key": uuid4(),
        "reason_max": REASON_MAX,
    }


def _plan(verb: Verb, query: str) -> Context:
    return {"title": f"{verb.title} in bulk", "here": "bulk", "verb": verb, "query": query}


def title(order: BulkOrder) -> str:
    """`Cancel 1,200 executions`."""
    verb = verbs.VERBS.get(order.verb)
    return f"{verb.title if verb else order.verb} {order.matched:,} {shown.noun(order)}"


def chosen(texts: Sequence[str]) -> list[UUID]:
    """The ids of the rows that were ticked, at most those of a page. Raises WrongRows."""
    try:
        ids = [UUID(text) for text in texts]
    except ValueError:
        raise WrongRows("Expected the ids of rows") from None
    if len(ids) > ordering.IDS_MAX:
        raise WrongRows(f"Expected at most {ordering.IDS_MAX} rows, found {len(ids)}")
    return ids


def stop_dialog(order: BulkOrder) -> Dialog:
    """Offered while it is open; refused afterwards all the same."""
    return Dialog(
        id="stop",
        label="Stop",
        button="Stop the order",
        question="Stop this order?",
        explanation="The batch in process is finished, and none follows. What was done stays done.",
        url=reverse("console:bulk_stop", args=[order.pk]),
    )


def _sample(found: Foreseen) -> list[Execution]:
    """The first of the executions; of other rows the ids say little."""
    if found.verb.noun is not EXECUTIONS:
        return []
    rows = Execution.objects.filter(pk__in=found.ids[:SAMPLE]).select_related("worker")
    return list(rows.defer("parameters", "result").order_by("pk"))


def _refusals(request: HttpRequest, order: BulkOrder) -> tuple[list[Refusal], str | None]:
    """A page of what was refused, in the order of the work."""
    after = paging.cursor(request.GET.get(paging.AFTER, ""), cursors.whole_number)
    rows = order.refusals.filter(pk__gt=after) if after else order.refusals.all()
    return cursors.cut(list(rows.order_by("pk")[: ROWS + 1]), ROWS)
