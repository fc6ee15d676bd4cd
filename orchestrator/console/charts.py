"""The charts of Now: what ended, waits, failures; with what happened to workers meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from orchestrator.console import svg
from orchestrator.console.access import Context
from orchestrator.console.kept import for_all
from orchestrator.console.look import Look, for_everywhere
from orchestrator.core import words
from orchestrator.core.models import WorkerEvent
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.rollups import series
from orchestrator.rollups import shown as shown_causes
from orchestrator.rollups.series import WINDOWS, Bin, Window

STANDARD = "15m"
PARAMETER = "charts"
OUTCOMES = [str(status) for status in ExecutionStatus if status in TERMINAL]
REASONS_MAX = 4
"""Reasons of failures that have a colour of their own."""
REST = "other reasons"
KINDS: dict[str, str] = {
    WorkerEvent.Kind.CORDONED: "cordoned",
    WorkerEvent.Kind.DRAINING: "draining",
    WorkerEvent.Kind.LOST: "lost",
}
EVENTS_LOOKED_AT = 200
EVENTS_MAX = 8
TOP = 5
LENGTHS = {1: "minute", 15: "quarter of an hour", 60: "hour"}
NAMES = {"15m": "15 minutes", "1h": "1 hour", "24h": "24 hours", "7d": "7 days"}


@dataclass(frozen=True)
class Legend:
    """A kind of value with its sum."""

    name: str
    number: str
    css: str


@dataclass(frozen=True)
class Chart:
    """A picture, and the same numbers as a table."""

    id: str
    title: str
    picture: SafeString
    most: str
    """At the upper end of its scale."""
    legend: Sequence[Legend]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Moment:
    """Something that happened to a worker."""

    at: datetime
    text: str
    worker: str


def context(look: Look, request: HttpRequest) -> Context:
    """The part of Now about the time that its address chooses."""
    window = WINDOWS.get(request.GET.get(PARAMETER, ""), WINDOWS[STANDARD])
    numbers = for_everywhere(
        look, ["executions.read"], f"numbers.{window.name}",
        lambda: series.numbers(window, now=look.now, seen_by=look.user),
    )  # fmt: skip
    moments = happened(look, window)
    places = [_place(moment.at, window, look.now) for moment in moments]
    return {
        "charts": [
            _outcomes(numbers.bins, window, places),
            _waits(numbers.bins, window, places),
            _failures(numbers.bins, window, places),
        ],
        "sparks": sparks(numbers.recent),
        "chart_window": window.name,
        "chart_windows": NAMES,
        "chart_from": timezone.localtime(window.first(look.now)),
        "chart_moments": moments[:EVENTS_MAX],
        "chart_moments_more": max(0, len(moments) - EVENTS_MAX),
        **top_causes(look),
    }


def top_causes(look: Look) -> Context:
    """The most frequent causes of failures in the last hour."""
    since = shown_causes.since(look.now, WINDOWS["1h"].length)
    found = for_everywhere(
        look, ["executions.read"], "top_causes",
        lambda: shown_causes.most_frequent(since=since, most=TOP, seen_by=look.user),
    )  # fmt: skip
    return {
        "top_causes": shown_causes.described(found, since=since, seen_by=look.user),
        "top_since": timezone.localtime(since),
    }


def sparks(recent: Mapping[str, Sequence[int]]) -> dict[str, SafeString]:
    """The small charts of what ended in each of the last 15 minutes, by status."""
    return {
        status: svg.spark(values, f"{status} by minute: {', '.join(map(str, values))}")
        for status, values in recent.items()
    }


def happened(look: Look, window: Window) -> list[Moment]:
    """The moments at which something happened to workers that are not retired, the newest first: of
    the newest events."""
    if not look.may("workers.read"):
        return []
    first = window.first(look.now)
    names = {worker.pk: worker.name for worker in look.workers}
    return [
        Moment(at, f"{KINDS[kind]}{f' ({reason})' if reason else ''}", names[worker_id])
        for at, kind, worker_id, reason in for_all("moments", _moments)
        if at >= first and worker_id in names
    ]


def _moments() -> list[tuple[datetime, str, int, str]]:
    newest = WorkerEvent.objects.order_by("-pk").values_list("at", "kind", "worker_id", "reason")
    return [row for row in newest[:EVENTS_LOOKED_AT] if row[1] in KINDS]


def _place(at: datetime, window: Window, now: datetime) -> float:
    return max(0.0, min(1.0, (at - window.first(now)) / window.length))


def _outcomes(bins: Sequence[Bin], window: Window, places: Sequence[float]) -> Chart:
    return _stacked(
        "ended", f"Ended, by outcome, in each {LENGTHS[window.minutes]}", bins, places,
        lambda each: each.ended, {name: f"o-{name}" for name in OUTCOMES},
    )  # fmt: skip


def _failures(bins: Sequence[Bin], window: Window, places: Sequence[float]) -> Chart:
    totals: Counter[str] = Counter()
    for each in bins:
        totals.update(each.failed)
    named = [reason for reason, _ in totals.most_common(REASONS_MAX)]
    rest = set(totals) - set(named)

    def numbers(each: Bin) -> dict[str, int]:
        own = {reason: each.failed.get(reason, 0) for reason in named}
        return own | ({REST: sum(each.failed.get(r, 0) for r in rest)} if rest else {})

    names = [*named, REST] if rest else named
    return _stacked(
        "failed", f"Failures, by reason, in each {LENGTHS[window.minutes]}", bins, places,
        numbers, {name: f"r-{number}" for number, name in enumerate(names)},
    )  # fmt: skip


def _stacked(
    id: str,
    title: str,
    bins: Sequence[Bin],
    places: Sequence[float],
    numbers: Callable[[Bin], dict[str, int]],
    classes: dict[str, str],
) -> Chart:
    found = [numbers(each) for each in bins]
    totals = {name: sum(each.get(name, 0) for each in found) for name in classes}
    layers = [
        svg.Layer(classes[name], [each.get(name, 0) for each in found])
        for name in classes
        if totals[name]
    ]
    shown = [name for name in classes if totals[name]]
    label = ", ".join(f"{totals[name]:,} {name}" for name in shown) or "none"
    return Chart(
        id=id,
        title=title,
        picture=svg.bars(layers, drafts=_drafts(bins), marks=places, label=f"{title}: {label}"),
        most=f"{max((sum(each.values()) for each in found), default=0):,}",
        legend=[Legend(name, f"{totals[name]:,}", classes[name]) for name in shown],
        columns=shown,
        rows=[
            [_time(each), *(f"{numbers.get(name, 0):,}" for name in shown)]
            for each, numbers in zip(bins, found, strict=True)
            if any(numbers.values())
        ],
    )


def _waits(bins: Sequence[Bin], window: Window, places: Sequence[float]) -> Chart:
    title = f"Wait for a worker, of what started in each {LENGTHS[window.minutes]}"
    median = [each.wait(0.5) for each in bins]
    slow = [each.wait(0.95) for each in bins]
    total: Counter[int] = Counter()
    for each in bins:
        total.update(each.waits)
    half, most = series.quantile(total, 0.5), series.quantile(total, 0.95)
    legend = [] if half is None else [
        Legend("half waited less than", _seconds(half), "w-half"),
        Legend("95 % waited less than", _seconds(most), "w-most"),
    ]  # fmt: skip
    label = ", ".join(f"{each.name} {each.number}" for each in legend) or "none started"
    return Chart(
        id="waits",
        title=title,
        picture=svg.lines(
            [("w-half", median), ("w-most", slow)],
            drafts=_drafts(bins), marks=places, label=f"{title}: {label}",
        ),
        most=_seconds(max((value for value in slow if value), default=0)),
        legend=legend,
        columns=["started", "half waited less than", "95 % waited less than"],
        rows=[
            [_time(each), f"{each.started:,}", _seconds(each.wait(0.5)), _seconds(each.wait(0.95))]
            for each in bins
            if each.started
        ],
    )  # fmt: skip


def _drafts(bins: Sequence[Bin]) -> list[bool]:
    return [not each.is_final for each in bins]


def _time(each: Bin) -> str:
    local = timezone.localtime(each.start)
    return f"{local:%m-%d %H:%M}{'' if each.is_final else ' (not final)'}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else words.span(seconds)
