"""The positions of a graph's nodes: in columns from left to right, every edge forwards.

The method is Sugiyama's: columns by the longest path from the start, edges over several columns
led through those between, an order in each column that crosses few edges, and then positions
as close to their neighbours' as that order allows. Pure functions: no database, no models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from orchestrator.workflows.dag import Parents

NODE_WIDTH = 196
NODE_HEIGHT = 54
COLUMN_GAP = 56
ROW_GAP = 18
LANE_HEIGHT = 6
"""The height that an edge needs in a column that it passes through."""
MARGIN = 16
SWEEPS = 8

Point = tuple[float, float]
Edge = tuple[str, str]
"""Parent and child."""
Slot = str | tuple[str, str, int]
"""An item that needs room in a column: a node by its name, or the lane of a passing edge."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Positions in pixels, y downwards."""

    width: float
    height: float
    corners: Mapping[str, Point]
    """The top left corner of each node."""
    routes: Mapping[Edge, Sequence[Point]]
    """From the right side of the parent to the left side of the child; horizontal through the
    columns that it passes."""
    backward: frozenset[Edge]
    """Edges that close a cycle. They have no route."""


def lay_out(parents: Parents) -> Layout:
    """Place every name; edges from unknown names are left out."""
    columns, backward = _columns(parents)
    column_of = {name: number for number, names in enumerate(columns) for name in names}
    edges = [
        (parent, child)
        for child, above in parents.items()
        for parent in above
        if parent in column_of and (parent, child) not in backward
    ]
    lines = {edge: _line(edge, column_of) for edge in edges}
    slots: list[list[Slot]] = [list(names) for names in columns]
    for (parent, _), line in lines.items():
        for offset, lane in enumerate(line[1:-1], start=1):
            slots[column_of[parent] + offset].append(lane)
    before, after = _neighbours(lines.values())
    _reorder(slots, before, after)
    middles = _middles(slots, before, after)
    top = min((middle - _height(slot) / 2 for slot, middle in middles.items()), default=0) - MARGIN
    ys = {slot: middle - top for slot, middle in middles.items()}
    lefts: dict[Slot, float] = {
        slot: MARGIN + number * (NODE_WIDTH + COLUMN_GAP)
        for number, column in enumerate(slots)
        for slot in column
    }
    return Layout(
        width=2 * MARGIN + max(len(slots) * (NODE_WIDTH + COLUMN_GAP) - COLUMN_GAP, 0),
        height=MARGIN + max((y + _height(slot) / 2 for slot, y in ys.items()), default=0),
        corners={name: (lefts[name], ys[name] - NODE_HEIGHT / 2) for name in column_of},
        routes={edge: list(_route(line, lefts, ys)) for edge, line in lines.items()},
        backward=frozenset(backward),
    )


def _columns(parents: Parents) -> tuple[list[list[str]], set[Edge]]:
    """Names by their longest path from the start, and the edges that close a cycle."""
    waiting = {name: {p for p in above if p in parents} for name, above in parents.items()}
    columns: list[list[str]] = []
    backward: set[Edge] = set()
    while waiting:
        free = [name for name, above in waiting.items() if not above]
        if not free:  # a cycle: break it at the name with the fewest open parents
            least = min(waiting, key=lambda name: len(waiting[name]))
            backward |= {(parent, least) for parent in waiting[least]}
            free = [least]
        for name in free:
            del waiting[name]
        for above in waiting.values():
            above.difference_update(free)
        columns.append(free)
    return columns, backward


def _line(edge: Edge, column_of: Mapping[str, int]) -> list[Slot]:
    """The slots of an edge: the parent, a lane in each column between, and the child."""
    parent, child = edge
    between = range(column_of[parent] + 1, column_of[child])
    return [parent, *((parent, child, number) for number in between), child]


def _neighbours(
    lines: Iterable[Sequence[Slot]],
) -> tuple[dict[Slot, list[Slot]], dict[Slot, list[Slot]]]:
    before: dict[Slot, list[Slot]] = {}
    after: dict[Slot, list[Slot]] = {}
    for line in lines:
        for left, right in pairwise(line):
            before.setdefault(right, []).append(left)
            after.setdefault(left, []).append(right)
    return before, after


def _reorder(
    columns: list[list[Slot]],
    before: Mapping[Slot, list[Slot]],
    after: Mapping[Slot, list[Slot]],
) -> None:
    """Sort each column by the mean place of its neighbours, there and back, a few times."""
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        neighbours = before if forwards else after
        for column, beside in pairwise(columns[::-1] if not forwards else columns):
            place = {slot: float(number) for number, slot in enumerate(column)}
            own = {slot: float(number) for number, slot in enumerate(beside)}
            beside.sort(key=lambda slot: _mean(neighbours.get(slot, ()), place, own[slot]))


def _middles(
    columns: Sequence[Sequence[Slot]],
    before: Mapping[Slot, list[Slot]],
    after: Mapping[Slot, list[Slot]],
) -> dict[Slot, float]:
    """The y of each slot's middle."""
    ys: dict[Slot, float] = {}
    for column in columns:
        ys.update(zip(column, _spread([0.0] * len(column), column), strict=True))
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else columns[::-1]:
            wanted = [
                _mean([*before.get(slot, ()), *after.get(slot, ())], ys, ys[slot])
                for slot in column
            ]
            ys.update(zip(column, _spread(wanted, column), strict=True))
    return ys


def _spread(wanted: Sequence[float], column: Sequence[Slot]) -> list[float]:
    """The positions closest to the wanted ones (least squares) that keep the order and do not
    overlap: isotonic regression, by pooling adjacent violators."""
    offsets = [0.0]
    for upper, lower in pairwise(column):
        offsets.append(offsets[-1] + (_height(upper) + _height(lower)) / 2 + ROW_GAP)
    pools: list[list[float]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        pool = [want - offset]
        while pools and fmean(pools[-1]) > fmean(pool):
            pool = pools.pop() + pool
        pools.append(pool)
    starts = [fmean(pool) for pool in pools for _ in pool]
    return [start + offset for start, offset in zip(starts, offsets, strict=False)]


def _mean(slots: Iterable[Slot], place: Mapping[Slot, float], otherwise: float) -> float:
    places = [place[slot] for slot in slots]
    return fmean(places) if places else otherwise


def _height(slot: Slot) -> float:
    return NODE_HEIGHT if isinstance(slot, str) else LANE_HEIGHT


def _route(
    line: Sequence[Slot], lefts: Mapping[Slot, float], ys: Mapping[Slot, float]
) -> Iterable[Point]:
    yield lefts[line[0]] + NODE_WIDTH, ys[line[0]]
    for lane in line[1:-1]:
        yield lefts[lane], ys[lane]
        yield lefts[lane] + NODE_WIDTH, ys[lane]
    yield lefts[line[-1]], ys[line[-1]]
