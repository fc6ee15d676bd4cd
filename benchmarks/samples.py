"""The measured values, and what follows from them: nothing here knows how they were measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.stage import Stage


@dataclass(frozen=True)
class Sample:
    """One measured value: whose, in which round, in what unit."""

    subject: str
    round: int
    value: float
    unit: str


@dataclass(frozen=True)
class Summary:
    """The median of some values, and how far they strayed."""

    median: float
    lowest: float
    highest: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Raises ValueError when there are none."""
        if not values:
            raise ValueError("there is nothing to summarize")
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The goal for a figure. A figure is the value of a subject or, with `over`, its ratio to
    another subject's value of the same round."""

    what: str
    subject: str
    over: str | None = None
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None
    stretch: float | None = None

    @property
    def text(self) -> str:
        """The goal as a reader sees it, such as `>= 1.0 x (stretch 1.3)`."""
        stretch = "" if self.stretch is None else f" (stretch {self.stretch:g})"
        return f"{self.bound} {self.unit}{stretch}"

    @property
    def bound(self) -> str:
        """The goal alone, such as `>= 1`."""
        sign, limit = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        return f"{sign} {limit:,g}"

    def figures(self, samples: Iterable[Sample]) -> list[float]:
        """One figure a round; rounds in which something is missing give none."""
        samples = list(samples)
        own = {s.round: s.value for s in samples if s.subject == self.subject}
        if self.over is None:
            return [own[number] for number in sorted(own)]
        other = {s.round: s.value for s in samples if s.subject == self.over}
        both = sorted(own.keys() & other.keys())
        return [own[number] / other[number] for number in both if other[number]]

    def is_reached(self, figure: float) -> bool:
        """Return True if a figure, usually the median, is on the right side of every bound."""
        return (self.at_least is None or figure >= self.at_least) and (
            self.at_most is None or figure <= self.at_most
        )


@dataclass(frozen=True)
class Plan:
    """The amount to measure."""

    size: int = 5_000
    """Executions of a throughput run. What is slow or measured one by one takes a part of it."""
    rounds: int = 3


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One comparison: what is measured, how, and what it should come to."""

    name: str
    title: str
    measure: Callable[[Stage, Plan], Iterator[Sample]]
    goals: Sequence[Goal] = ()
    notes: str = ""


@dataclass
class Result:
    """The result of one benchmark; `error` says why it did not come to an end."""

    name: str
    title: str
    goals: list[Goal]
    samples: list[Sample] = field(default_factory=list)
    notes: str = ""
    error: str = ""
    load_average: float = 0.0
    """Of the machine, over the last minute, when the benchmark ended: our own load included."""
    seconds: float = 0.0

    def summaries(self) -> dict[tuple[str, str], Summary]:
        """(subject, unit) -> summary, in the order of measuring."""
        values: dict[tuple[str, str], list[float]] = {}
        for sample in self.samples:
            values.setdefault((sample.subject, sample.unit), []).append(sample.value)
        return {key: Summary.of(found) for key, found in values.items()}


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not exceeded by `percent` of the values (nearest rank)."""
    if not values:
        raise ValueError("there is nothing to take a percentile of")
    rank = max(1, -(-len(values) * percent // 100))
    return sorted(values)[int(rank) - 1]


def parts(size: int, *, one_of: int, at_least: int = 50) -> int:
    """A smaller number of executions, for what takes longer each."""
    return max(min(size, at_least), size // one_of)
