"""Charts and sparklines as SVG, drawn by the server: numbers in, shapes out.

None has a style in it; classes give the colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 600, 100
SPARK_WIDTH, SPARK_HEIGHT = 100, 20


@dataclass(frozen=True)
class Layer:
    """The values of one kind, a number for each span."""

    name: str
    """Of its CSS class as well."""
    values: Sequence[float]


def bars(
    layers: Sequence[Layer], *, drafts: Sequence[bool], marks: Sequence[float], label: str
) -> SafeString:
    """Bars, the layers upon each other. `drafts`: the spans that may still grow, drawn lighter.
    `marks`: places between 0 and 1 at which something happened."""
    most = max((sum(column) for column in zip(*(x.values for x in layers), strict=True)), default=0)
    floors = [0.0] * len(drafts)
    paths: list[tuple[str, str]] = []
    for layer in layers:
        shapes = _bars(layer.values, floors, most or 1)
        for is_draft in (False, True):
            drawn = "".join(
                shape for shape, draft in zip(shapes, drafts, strict=True) if draft is is_draft
            )
            if drawn:
                paths.append((f"bar {layer.name}{' draft' if is_draft else ''}", drawn))
        floors = [floor + value for floor, value in zip(floors, layer.values, strict=True)]
    return _chart([*paths, *_marks(marks)], label)


def lines(
    layers: Sequence[tuple[str, Sequence[float | None]]],
    *,
    drafts: Sequence[bool],
    marks: Sequence[float],
    label: str,
) -> SafeString:
    """A line for each layer; where it has no value, it has a gap."""
    most = max((value for _, values in layers for value in values if value), default=0) or 1
    most *= 1.03  # a line at the upper end is seen whole
    paths = []
    for name, values in layers:
        for is_draft in (False, True):
            drawn = _line(values, drafts, most, is_draft=is_draft)
            if drawn:
                paths.append((f"line {name}{' draft' if is_draft else ''}", drawn))
    return _chart([*paths, *_marks(marks)], label)


def spark(values: Sequence[int], label: str) -> SafeString:
    """A small bar for each value, or for several if there are more than it has pixels. A page has
    many of them: numbers are whole, and bars that are a pixel wide have no gaps."""
    several = -(-len(values) // SPARK_WIDTH) or 1
    sums = [sum(values[at : at + several]) for at in range(0, len(values), several)]
    most = max(sums, default=0) or 1
    has_gaps = len(sums) <= SPARK_WIDTH // 2
    width = len(sums) * (5 if has_gaps else 1) or 1
    tops = [SPARK_HEIGHT - (n and max(1, round(n / most * SPARK_HEIGHT))) for n in sums]
    if has_gaps:
        drawn = "".join(f"V{top}h4V{SPARK_HEIGHT}h1" for top in tops)
    else:
        drawn = "".join(f"V{top}h{len(list(same))}" for top, same in groupby(tops))
    return format_html(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><path d="M0 {}h{}" class="base"/><path d="M0 {}{}V{}z"/></svg>',
        width, SPARK_HEIGHT, label, SPARK_HEIGHT - 0.5, width, SPARK_HEIGHT, drawn, SPARK_HEIGHT,
    )  # fmt: skip


def _chart(paths: Iterable[tuple[str, str]], label: str) -> SafeString:
    return format_html(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>',
        WIDTH, HEIGHT, label,
        format_html_join("", '<path class="{}" d="{}"/>', paths),
    )  # fmt: skip


def _bars(values: Sequence[float], floors: Sequence[float], most: float) -> list[str]:
    step = WIDTH / max(1, len(values))
    width = step * 0.8
    return [
        f"M{_n(number * step)} {_n(HEIGHT * (1 - floor / most))}v-{_n(HEIGHT * value / most)}"
        f"h{_n(width)}v{_n(HEIGHT * value / most)}z"
        if value
        else ""
        for number, (value, floor) in enumerate(zip(values, floors, strict=True))
    ]


def _line(
    values: Sequence[float | None], drafts: Sequence[bool], most: float, *, is_draft: bool
) -> str:
    """A stroke for each value over its whole span: a single one is seen, too."""
    step = WIDTH / max(1, len(values))
    drawn, is_down = [], False
    for number, value in enumerate(values):
        if value is None or drafts[number] is not is_draft:
            is_down = False
            continue
        y = _n(HEIGHT * (1 - value / most))
        x = _n(number * step)
        drawn.append(f"{f'V{y}' if is_down else f'M{x} {y}'}h{_n(step)}")
        is_down = True
    return "".join(drawn)


def _marks(marks: Sequence[float]) -> list[tuple[str, str]]:
    drawn = "".join(f"M{_n(WIDTH * place)} 0V{HEIGHT}" for place in marks)
    return [("mark", drawn)] if drawn else []


def _n(number: float) -> str:
    """A number of at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")
