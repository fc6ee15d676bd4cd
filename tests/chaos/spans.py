"""Arithmetic of times: a span is (begin, end), a list of them is what is true when."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

Span = tuple[float, float]

FOREVER = float("inf")


def union(spans: Iterable[Span], between: float = 0.0) -> list[Span]:
    """The same time in spans that do not touch, in order. Those with no more than `between` from
    the end of one to the next are one."""
    merged: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin <= merged[-1][1] + between:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def without(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """What is left of the first when the second is taken away."""
    left: list[Span] = []
    gaps = union(taken)
    first = 0
    for begin, end in union(spans):
        while first < len(gaps) and gaps[first][1] <= begin:
            first += 1
        at = begin
        for since, until in islice(gaps, first, None):
            if since >= end:
                break
            left.append((at, since))
            at = until
        left.append((at, end))
    return [span for span in left if span[0] < span[1]]


def seconds_in(spans: Iterable[Span], begin: float, end: float) -> float:
    """How much of the time from begin to end is in one of them."""
    return sum(max(0.0, min(end, until) - max(begin, at)) for at, until in union(spans))
