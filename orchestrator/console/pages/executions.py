"""Executions: what a search finds, the newest first, and the searches that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from orchestrator.console import access, bulk_bar, columns, paging
from orchestrator.console.access import Context
from orchestrator.console.columns import Cell, Listed
from orchestrator.console.look import Look
from orchestrator.console.paging import NEWER_MAX, ROWS
from orchestrator.core import search
from orchestrator.core.models import Execution, SavedSearch
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.search import saved
from orchestrator.core.shown import executions as shown

UNLISTED = ("parameters", "result", "worker_selector", "retry_policy")

FILTERS = {"status": "status", "action": "action", "worker": "worker", "reason": "reason"}
"""Parameters of addresses that lists had before there was a search, and the keys for them."""

ONE_CLICK = (
    ("all", ""),
    ("failed, last hour", "status:failed created:<1h"),
    ("last hour", "created:<1h"),
    ("open", "status:open"),
    ("running", "status:running"),
    ("waiting", "status:requested,scheduling"),
    ("overdue", "is:overdue"),
)
"""Searches that are one click away."""


class Row(NamedTuple):
    """An execution as the list shows it."""

    id: UUID
    cells: Sequence[Cell]


class Chip(NamedTuple):
    """A search that is one click away."""

    name: str
    url: str
    text: str
    is_current: bool
    note: str = ""


@dataclass(frozen=True)
class Piece:
    """A part of a search that could not be read, or one between two such parts."""

    text: str
    is_wrong: bool = False


@dataclass
class Listing:
    """The executions that a search found, or why it was refused: then there is no row."""

    rows: list[Execution] = field(default_factory=list)
    next_cursor: str | None = None
    looked_at: str = ""
    """A sentence; empty if nothing was left out."""
    newer: int = 0
    pieces: list[Piece] = field(default_factory=list)
    """Of a search that could not be read, with its mistakes."""
    refusals: list[str] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        return bool(self.refusals)


def executions_url(text: str = "") -> str:
    """The list of what this search finds."""
    return f"{reverse('console:executions')}?{urlencode({'q': text})}"


@access.page("executions", needs="executions.read", topics="execution,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """The newest that the search of the address finds."""
    text = _text(request)
    before = paging.cursor(request.GET.get(paging.BEFORE, ""), UUID)
    first = paging.parsed(request.headers.get(paging.FIRST, ""), UUID)
    listing = _listing(look, text, before, first)
    shown_columns = columns.chosen(request.GET.getlist("col"))
    kept = saved.listed(look.user)
    return {
        "title": "Executions",
        "here": "executions",
        "q": text,
        "listing": listing,
        "rows": list(_drawn(look, listing.rows, shown_columns)),
        "columns": shown_columns,
        "all_columns": columns.COLUMNS,
        "older": _older(request, listing),
        "newer_max": NEWER_MAX,
        "first": first or (listing.rows[0].pk if listing.rows and before is None else ""),
        "chips": _chips(request, text, ONE_CLICK),
        "saved": _chips(request, text, ((each.name, each.text) for each in kept)),
        "removable": [each for each in kept if _may_remove(look, each)],
        "may_share": look.may(saved.SHARES),
        "may_run": look.may("executions.run"),
        "bulk": None if listing.is_refused else bulk_bar.bar(look, text),
    }


def _text(request: HttpRequest) -> str:
    """The search of the address. A filter of an older address is a term of it: left out, it would
    show more than was asked for."""
    text = request.GET.get("q", "").strip()
    filters = [
        search.term(key, value)
        for name, key in FILTERS.items()
        if (value := request.GET.get(name, "").strip())
    ]
    return " ".join([*([text] if text else []), *filters])


@require_GET
@access.staff_only
def complete(request: HttpRequest) -> HttpResponseBase:
    """The texts that may follow at the place `at` of the search `q`."""
    look = Look.of(request)
    if not look.may("executions.read"):
        return JsonResponse({"items": []}, status=403)
    text = request.GET.get("q", "")[: search.LONGEST]
    at = paging.parsed(request.GET.get("at", ""), int)
    position = len(text) if at is None else max(0, min(at, len(text)))
    found = search.complete(text, position, search.Asked(look.user, look.now))
    items = [{"text": e.text, "start": e.start, "end": e.end, "about": e.about} for e in found]
    return JsonResponse({"items": items})


def _listing(look: Look, text: str, before: UUID | None, first: UUID | None) -> Listing:
    visible = Execution.objects.visible_to(look.user).select_related("worker").defer(*UNLISTED)
    every = Execution.objects.all()
    try:
        wanted = search.read(text, search.Asked(look.user, look.now))
        newer = 0 if first is None else _newer(wanted, visible, first)
        if first is not None:
            visible, every = visible.filter(pk__lte=first), every.filter(pk__lte=first)
        found = search.find(wanted, visible, limit=ROWS, below=before, among=every)
    except search.NotUnderstood as error:
        return Listing(
            pieces=list(_pieces(error)), refusals=[each.message for each in error.mistakes]
        )
    except search.SearchTookTooLong as error:
        return Listing(refusals=[str(error)])
    looked_at = found.looked_at.text if found.looked_at else ""
    return Listing(found.rows, found.next_cursor, looked_at, newer)


def _newer(wanted: search.Wanted, visible: ExecutionQuerySet, first: UUID) -> int:
    """The number of those that have come since; one more than the most if there are more."""
    among = Execution.objects.filter(pk__gt=first)
    found = search.find(wanted, visible.filter(pk__gt=first), limit=NEWER_MAX, among=among)
    return len(found.rows) + (found.next_cursor is not None)


def _pieces(error: search.NotUnderstood) -> Iterator[Piece]:
    """The text of the search, cut where its mistakes begin and end."""
    text, place = error.text[: search.LONGEST + 1], 0
    for mistake in sorted(error.mistakes, key=lambda each: each.start):
        start, end = max(place, mistake.start), max(mistake.end, mistake.start + 1)
        if start > place:
            yield Piece(text[place:start])
        yield Piece(text[start:end] or " ", is_wrong=True)
        place = max(place, end)
    if text[place:]:
        yield Piece(text[place:])


def _drawn(look: Look, rows: Sequence[Execution], wanted: Sequence[Any]) -> Iterator[Row]:
    said = shown.messages(rows, seen_by=look.user)
    for each in rows:
        listed = Listed(each, said.get(each.pk, ""), look.now)
        yield Row(each.pk, columns.cells(listed, wanted))


def _older(request: HttpRequest, listing: Listing) -> str:
    if listing.next_cursor is None:
        return ""
    return _query(request, {"before": listing.next_cursor})


def _query(request: HttpRequest, changes: Mapping[str, str]) -> str:
    """The query of the address with changes; the page of the list is none of it."""
    query = request.GET.copy()
    for name in ("before", *FILTERS):
        query.pop(name, None)
    query["q"] = _text(request)
    for name, value in changes.items():
        query[name] = value
    return query.urlencode()


def _chips(request: HttpRequest, text: str, named: Iterable[tuple[str, str]]) -> list[Chip]:
    return [
        Chip(name, f"?{_query(request, {'q': each})}", each, is_current=each == text)
        for name, each in named
    ]


def _may_remove(look: Look, kept: SavedSearch) -> bool:
    return kept.owner == look.user.actor or look.may(saved.SHARES)
