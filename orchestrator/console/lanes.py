"""The time of an execution as lanes, one for each attempt, and the same as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from orchestrator.core import words
from orchestrator.core.shown.attempts import Attempt, Stage

LANES_MAX = 40
"""Attempts that are drawn, the latest ones."""
LEAST_PERCENT = 0.25
"""So wide is what is too short to be seen."""

NAMES = {Stage.WAITS: "waits for a slot", Stage.QUEUED: "in the queue", Stage.RUNS: "runs"}


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane, in percent of its width."""

    stage: Stage
    x: float
    width: float
    title: str

    @property
    def fill(self) -> str:
        return f"url(#lane-{self.stage})"


@dataclass(frozen=True)
class Lane:
    """An attempt."""

    name: str
    where: str
    bars: Sequence[Bar]
    waited: str
    queued: str
    ran: str
    ended: str

    @property
    def label(self) -> str:
        """The lane for who does not see it."""
        spent = ((self.waited, "waited"), (self.queued, "in the queue"), (self.ran, "ran"))
        parts = [f"{word} {text}" for text, word in spent if text]
        return f"{self.name} {self.where}: {', '.join(parts) or 'no time'}"


@dataclass(frozen=True)
class Picture:
    """All lanes over the same time."""

    lanes: Sequence[Lane]
    begins: str
    ends: str
    took: str
    left_out: int
    """Earlier attempts that are not drawn."""


def picture(found: Sequence[Attempt]) -> Picture | None:
    """Draw the attempts; None for an execution that has had no time yet."""
    drawn = list(found)[-LANES_MAX:]
    stretches = [each for attempt in drawn for each in attempt.stretches]
    if not stretches:
        return None
    start, end = stretches[0].start, max(each.end for each in stretches)
    return Picture(
        lanes=[_lane(each, start, end) for each in drawn],
        begins=_clock(start),
        ends=_clock(end),
        took=words.span((end - start).total_seconds()),
        left_out=len(found) - len(drawn),
    )


def _lane(attempt: Attempt, start: datetime, end: datetime) -> Lane:
    whole = (end - start).total_seconds() or 1
    bars = []
    for each in attempt.stretches:
        width = max(LEAST_PERCENT, 100 * each.seconds / whole)
        x = min(100 * (each.start - start).total_seconds() / whole, 100 - width)
        title = f"{NAMES[each.stage]} {words.span(each.seconds)}"
        bars.append(Bar(each.stage, round(max(0, x), 3), round(width, 3), title))
    life = f" (life {attempt.life})" if attempt.life else ""
    where = f"on {attempt.worker}{life}" if attempt.worker else ""
    has = {each.stage for each in attempt.stretches}

    def spent(stage: Stage) -> str:
        return words.span(attempt.seconds(stage)) if stage in has else ""

    return Lane(
        name=f"Attempt {attempt.number}" if attempt.number else "Not dispatched",
        where=where,
        bars=bars,
        waited=spent(Stage.WAITS),
        queued=spent(Stage.QUEUED),
        ran=spent(Stage.RUNS),
        ended=attempt.reason or attempt.ended_by,
    )


def _clock(at: datetime) -> str:
    return f"{timezone.localtime(at):%H:%M:%S.%f}"[:-3]
