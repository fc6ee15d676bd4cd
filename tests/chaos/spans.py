"""Arithmetic of times: a span is (begin, end), a list of them is what is true when."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[float, float]

FOREVER = float("inf")


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time in spans that do not touch, in order."""
    merged: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def without(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """What is left of the first when the second is taken away."""
    left = union(spans)
    for begin, end in union(taken):
        rest: list[Span] = []
        for at, until in left:
            rest += [(at, min(until, begin)), (max(at, end), until)]
        left = [span for span in rest if span[0] < span[1]]
    return left


def seconds_in(spans: Iterable[Span], begin: float, end: float) -> float:
    """How much of the time from begin to end is in one of them."""
    return sum(max(0.0, min(end, until) - max(begin, at)) for at, until in union(spans))
