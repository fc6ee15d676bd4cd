"""The goals as a chart: one bar each, on a scale on which every goal stands in the same place.

Written by hand as SVG: it needs no library, and a diff of it can be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.report import Verdict, number

WIDTH, ROW, TOP, BOTTOM = 880, 26, 58, 22
LABELS, PLOT = 280, 410
SPAN = 8.0
"""The axis goes from an eighth of a goal to eight times it."""

REACHED, MISSED, INK, FAINT = "#2e7d5b", "#b5533c", "#24292f", "#8c959f"


def advantage(verdict: Verdict, value: float) -> float:
    """The factor by which a value is beyond its goal: 2 is twice as good, whichever way good is."""
    goal = verdict.goal
    if goal.at_least is not None:
        return value / goal.at_least
    assert goal.at_most is not None
    return goal.at_most / value if value else SPAN


def position(times: float) -> float:
    """The place of an advantage on the logarithmic axis, from 0 to 1, cut off at both ends."""
    exponent = math.log(max(times, 1e-9), SPAN)
    return (min(1.0, max(-1.0, exponent)) + 1) / 2


def svg(verdicts: Sequence[Verdict]) -> str:
    measured = [verdict for verdict in verdicts if verdict.summary is not None]
    height = TOP + ROW * len(measured) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'role="img" font-family="system-ui, sans-serif" font-size="12">',
        "<title>Medians of what was measured, each against its goal</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(12, 22, "Measured against its goals", size=15, weight="600"),
        *_axis(height),
    ]
    for index, verdict in enumerate(measured):
        parts += _row(verdict, TOP + ROW * index)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis(height: int) -> list[str]:
    lines = []
    for times, label in ((1 / 8, "⅛"), (1 / 4, "¼"), (1 / 2, "½"), (1, "goal"), (2, "2 x"),
                         (4, "4 x"), (8, "8 x better")):  # fmt: skip
        x = LABELS + PLOT * position(times)
        colour, dash = (INK, "") if times == 1 else ("#d8dee4", ' stroke-dasharray="2 3"')
        lines.append(
            f'<line x1="{x:.1f}" y1="{TOP - 10}" x2="{x:.1f}" y2="{height - BOTTOM}" '
            f'stroke="{colour}"{dash}/>'
        )
        lines.append(_text(x, TOP - 16, label, fill=FAINT, anchor="middle"))
    return lines


def _row(verdict: Verdict, top: int) -> list[str]:
    """A bar from the goal to the median, a whisker from the lowest to the highest round."""
    assert verdict.summary is not None
    summary = verdict.summary
    goal_x = LABELS + PLOT * position(1)
    xs = [
        LABELS + PLOT * position(advantage(verdict, value))
        for value in (summary.median, summary.lowest, summary.highest)
    ]
    middle = top + ROW / 2
    colour = MISSED if verdict.word == "missed" else REACHED
    left, width = min(goal_x, xs[0]), max(1.0, abs(xs[0] - goal_x))
    said = f"{number(summary.median)} {verdict.goal.unit}"
    return [
        _text(LABELS - 12, middle + 4, verdict.goal.what, anchor="end"),
        f'<rect x="{left:.1f}" y="{top + 6}" width="{width:.1f}" height="{ROW - 12}" '
        f'fill="{colour}"/>',
        f'<line x1="{xs[1]:.1f}" y1="{middle:.1f}" x2="{xs[2]:.1f}" y2="{middle:.1f}" '
        f'stroke="{INK}" stroke-width="1.5"/>',
        _text(LABELS + PLOT + 14, middle + 4, f"{said}   (goal {_sign(verdict.goal.bound)})"),
    ]


def _sign(bound: str) -> str:
    return bound.replace(">=", "≥").replace("<=", "≤")


def _text(
    x: float,
    y: float,
    text: str,
    *,
    fill: str = INK,
    anchor: str = "start",
    size: int = 12,
    weight: str = "400",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" '
        f'font-size="{size}" font-weight="{weight}">{escape(text)}</text>'
    )
