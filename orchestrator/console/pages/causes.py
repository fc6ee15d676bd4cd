"""Causes: what breaks most; and one cause with its executions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from orchestrator.console import access, bulk_bar, paging, svg
from orchestrator.console.access import Context
from orchestrator.console.kept import for_all
from orchestrator.console.look import Look
from orchestrator.console.paging import ROWS
from orchestrator.core import cursors
from orchestrator.core.errors import NotFound
from orchestrator.core.models import Execution
from orchestrator.core.redaction import redacted_text
from orchestrator.core.shown import executions as shown_executions
from orchestrator.core.words import Kind, kind_of
from orchestrator.rollups import series, shown
from orchestrator.rollups.models import Failure, FailureGroup
from orchestrator.rollups.series import WINDOWS, Window
from orchestrator.rollups.shown import Cause

MOST = 50
WORKERS_MAX = 5
STANDARD = "24h"
CHOICES = ("1h", "24h", "7d")


class UnknownCause(NotFound):
    """No cause has this number."""


@dataclass(frozen=True)
class Row:
    """A cause as the list shows it."""

    cause: Cause
    trend: SafeString
    workers: str
    url: str


@dataclass(frozen=True)
class Failed:
    """An execution of a cause. It may be gone."""

    id: UUID
    at: datetime
    execution: Execution | None
    message: str
    kind: Kind


@access.page("causes", needs="executions.read", topics="execution,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """The most frequent causes of failures in a time, and how these developed."""
    window = _window(request)
    since = shown.since(look.now, window.length)
    action = request.GET.get("action", "")
    numbers = shown.most_frequent(since=since, most=MOST, seen_by=look.user, action_ref=action)
    found = shown.described(numbers, since=since, seen_by=look.user)
    return {
        "title": "Causes",
        "here": "causes",
        "rows": _rows(found, window, since, look),
        "most": MOST,
        "is_cut": len(found) >= MOST,
        "window": window.name,
        "windows": CHOICES,
        "since": timezone.localtime(since),
        "action": action,
        "looked_at": shown.LOOKED_AT,
    }


@access.page("cause", needs="executions.read", topics="execution,clock")
def show(look: Look, request: HttpRequest, id: int) -> Context:
    """One cause: when, where, and the executions that failed of it."""
    group = FailureGroup.objects.filter(pk=id).first()
    if group is None or not look.may("executions.read", group.place):
        raise UnknownCause(f"No cause has the number {id}")
    window = _window(request)
    since = shown.since(look.now, window.length)
    below = paging.cursor(request.GET.get(paging.BEFORE, ""), UUID)
    # the same for everybody who may see the cause
    found = for_all(
        f"cause.{group.pk}.{window.name}.{below}",
        lambda: _read(group, window, since, below, look),
    )
    cause = Cause(group, sum(found.trend), since, shown.title(group, seen_by=look.user))
    # what failed long ago is not run again with what fails now
    query = f"cause:{group.pk} created:<{window.name}"
    older = {"within": window.name, "before": found.cursor}
    return {
        "title": cause.title,
        "here": "causes",
        "cause": cause,
        "sentence": shown.sentence(group.reason),
        "rows": _failed(found.page, look),
        "search": f"{reverse('console:executions')}?{urlencode({'q': query})}",
        "again": bulk_bar.run_again_url(look, query, group.place),
        "older": urlencode(older) if found.cursor else "",
        "window": window.name,
        "windows": CHOICES,
        "since": timezone.localtime(since),
        "trend": svg.spark(found.trend, _trend_text(found.trend)),
        "workers": list(_named(found.workers, look.worker_names(found.workers)).items()),
        "looked_at": shown.LOOKED_AT,
    }


class Found(NamedTuple):
    """The facts that are read of a cause."""

    page: Sequence[Failure]
    cursor: str | None
    trend: Sequence[int]
    workers: dict[int, int]


def _read(
    group: FailureGroup, window: Window, since: datetime, below: UUID | None, look: Look
) -> Found:
    failures = shown.failures(group, since=since)
    page, cursor = cursors.newest(failures, limit=ROWS, below=below)
    trend = series.trends([group.pk], window, since=since, now=look.now)[group.pk]
    return Found(page, cursor, trend, shown.workers([group.pk], since=since)[group.pk])


def cause_url(group_id: int, window: str = STANDARD) -> str:
    """The page of a cause, of a time before now."""
    return f"{reverse('console:cause', args=[group_id])}?{urlencode({'within': window})}"


def urls_of(executions: Iterable[Execution]) -> dict[UUID, str]:
    """The pages of the causes of which these executions failed, by their ids: one query."""
    failures = Failure.objects.filter(execution_id__in=[each.pk for each in executions])
    return {id: cause_url(group) for id, group in failures.values_list("execution_id", "group_id")}


def _window(request: HttpRequest) -> Window:
    name = request.GET.get("within", "")
    return WINDOWS[name if name in CHOICES else STANDARD]


def _rows(found: Sequence[Cause], window: Window, since: datetime, look: Look) -> list[Row]:
    ids = [each.group.pk for each in found]
    trends = series.trends(ids, window, since=since, now=look.now) if ids else {}
    workers = shown.workers(ids, since=since) if ids else {}
    names = look.worker_names({id for found in workers.values() for id in found})
    return [
        Row(
            each,
            svg.spark(trends[each.group.pk], _trend_text(trends[each.group.pk])),
            _listed(_named(workers[each.group.pk], names)),
            cause_url(each.group.pk, window.name),
        )
        for each in found
    ]


def _trend_text(trend: Sequence[int]) -> str:
    """A trend may have 168 numbers, which nobody wants to hear."""
    half = len(trend) // 2
    return f"{sum(trend[:half]):,} in the first half, {sum(trend[half:]):,} in the second"


def _named(workers: Mapping[int, int], names: Mapping[int, str]) -> dict[str, int]:
    return {names[id]: number for id, number in workers.items() if id in names}


def _listed(workers: dict[str, int]) -> str:
    names = list(workers)
    more = f" and {len(names) - WORKERS_MAX} more" if len(names) > WORKERS_MAX else ""
    return ", ".join(names[:WORKERS_MAX]) + more


def _failed(page: Sequence[Failure], look: Look) -> list[Failed]:
    rows = Execution.objects.filter(pk__in=[each.execution_id for each in page]).order_by()
    known = {
        each.pk: each
        for each in rows.select_related("worker").defer("parameters", "result")
        if look.may("executions.read", each.place)
    }
    said = shown_executions.messages(list(known.values()), seen_by=look.user)
    return [
        Failed(
            each.execution_id,
            each.at,
            known.get(each.execution_id),
            redacted_text(said.get(each.execution_id, "")),
            kind_of(known[each.execution_id].status) if each.execution_id in known else Kind.PLAIN,
        )
        for each in page
    ]
