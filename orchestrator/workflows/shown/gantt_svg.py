"""A gantt chart as SVG. What waits is hatched, what runs is full, a pause is a line, a failure ends
with a cross, and the attempts are numbered: nothing is told by colour alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from orchestrator.core import words
from orchestrator.workflows.shown.gantt import PAUSES, RUNS, WAITS, Bar, Chart, Row

LABEL_WIDTH = 190
PLOT_WIDTH = 900
"""The whole time of the chart, in pixels."""
RIGHT = 24
ROW_HEIGHT = 24
BAR_HEIGHT = 12
TOP = 28
LEAST_WIDTH = 1.0
"""Of a bar: what happened can be seen."""
NAME_CHARACTERS = 24
TICKS_MOST = 7
TICKS = (
    0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400,
    604_800, 2_592_000, 31_536_000,
)  # fmt: skip
"""Seconds between two ticks."""

Link = Callable[[Row], str]


def picture(chart: Chart, *, link: Link, chosen: str = "") -> SafeString:
    """Draw the chart. `chosen`: the step that the page is about."""
    width = LABEL_WIDTH + PLOT_WIDTH + RIGHT
    height = TOP + ROW_HEIGHT * len(chart.rows) + 4
    bars = [
        (row, bar, TOP + number * ROW_HEIGHT)
        for number, row in enumerate(chart.rows)
        for bar in row.bars
    ]

    def drawn(kind: str) -> SafeString:
        rects = (_rect(chart, row, bar, y) for row, bar, y in bars if bar.kind == kind)
        return format_html_join("", "{}", ((rect,) for rect in rects))

    return format_html(
        '<svg class="m-gantt" width="{}" height="{}" viewBox="0 0 {} {}" role="group" '
        'aria-label="When each step waited and ran"><defs><pattern id="m-hatch" width="5" '
        'height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<path d="M0 0V5"/></pattern></defs>{}{}<g class="m-waits" fill="url(#m-hatch)">{}</g>'
        '<g class="m-runs">{}</g><g class="m-pauses">{}</g>{}</svg>',
        width, height, width, height,
        _axis(chart, height),
        format_html_join("", "{}", ((each,) for each in _labels(chart, link, chosen))),
        drawn(WAITS), drawn(RUNS), drawn(PAUSES),
        format_html_join("", "{}", ((each,) for row, bar, y in bars
                                    for each in _marks(chart, row, bar, y))),
    )  # fmt: skip


def x_of(chart: Chart, at: datetime) -> float:
    """The place of a time."""
    whole = (chart.end - chart.begin).total_seconds() or 1.0
    return LABEL_WIDTH + PLOT_WIDTH * (at - chart.begin).total_seconds() / whole


def said(row: Row) -> str:
    """A row in words."""
    if not row.bars:
        return f"{row.name}: {row.state}, not tried yet"
    parts = [f"{row.name}: {row.state}", f"waited {words.span(row.seconds(WAITS))}"]
    parts.append(f"ran {words.span(row.seconds(RUNS))}")
    if row.attempts > 1:
        parts.append(f"{row.attempts} attempts")
    return ", ".join(parts)


def _labels(chart: Chart, link: Link, chosen: str) -> Iterator[SafeString]:
    for number, row in enumerate(chart.rows):
        text = row.name if len(row.name) <= NAME_CHARACTERS else f"{row.name[:22]}…"
        current = SafeString(' aria-current="true"') if row.name == chosen else ""
        yield format_html(
            '<a href="{}" aria-label="{}"{}><text x="2" y="{}" class="m-{}">{}</text></a>',
            link(row), said(row), current, TOP + number * ROW_HEIGHT + 16,
            words.kind_of(row.state) or "idle", text,
        )  # fmt: skip


def _rect(chart: Chart, row: Row, bar: Bar, y: int) -> SafeString:
    x = x_of(chart, bar.begin)
    width = max(x_of(chart, bar.end) - x, LEAST_WIDTH)
    classes = " ".join(
        name for name, is_so in (("m-failed", bar.has_failed), ("m-on", bar.is_open)) if is_so
    )
    return format_html(
        '<rect id="{}-{}-{}" x="{}" y="{}" width="{}" height="{}"{}/>',
        bar.kind, row.name, bar.attempt, round(x, 2),
        y + (ROW_HEIGHT - BAR_HEIGHT) // 2 + (BAR_HEIGHT // 2 - 1 if bar.kind == PAUSES else 0),
        round(width, 2), 2 if bar.kind == PAUSES else BAR_HEIGHT,
        format_html(' class="{}"', classes) if classes else "",
    )  # fmt: skip


def _marks(chart: Chart, row: Row, bar: Bar, y: int) -> Iterator[SafeString]:
    """The number of an attempt, if there are several, above its beginning; a cross at a failure."""
    if row.attempts > 1 and bar.kind == WAITS:
        yield format_html(
            '<text class="m-try" x="{}" y="{}">{}</text>',
            round(x_of(chart, bar.begin), 1), y + 5, bar.attempt,
        )  # fmt: skip
    if bar.has_failed:
        x = round(x_of(chart, bar.end), 1)
        yield format_html(
            '<path class="m-cross" d="M{} {}l8 8m0-8l-8 8"/>', x - 4, y + ROW_HEIGHT // 2 - 4
        )


def _axis(chart: Chart, height: int) -> SafeString:
    return format_html_join(
        "",
        '<path class="m-tick" d="M{} {}V{}"/><text class="m-at" x="{}" y="14">{}</text>',
        (
            (round(x, 1), TOP - 8, height, round(x + 3, 1), text)
            for x, text in ((x_of(chart, at), _time(at, chart)) for at in _ticks(chart))
        ),
    )


def _ticks(chart: Chart) -> Iterator[datetime]:
    seconds = (chart.end - chart.begin).total_seconds()
    size = next((each for each in TICKS if seconds / each <= TICKS_MOST), TICKS[-1])
    for number in range(int(seconds / size) + 1):
        yield chart.begin + timedelta(seconds=number * size)


def _time(at: datetime, chart: Chart) -> str:
    """The first tick is the time of the day; the others say how long after it they are."""
    if at == chart.begin:
        return f"{timezone.localtime(at):%H:%M:%S}"
    return f"+{words.span((at - chart.begin).total_seconds())}"
