"""Texts that all faces share: the colour of a state, a duration, labels, what was meant, bytes.

A state's colour is defined beside the state, as its `Kind`; each face has one table from kinds to
its own colours.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Any

from django.utils.module_loading import import_string

from orchestrator.core import frame, spelling

HEX_COLUMNS = 16
HEX_LIMIT_BYTES = 4_096


class Kind(enum.StrEnum):
    """The meaning of a state for people; the names are those of Unfold's labels."""

    PLAIN = ""
    INFO = "info"
    PRIMARY = "primary"
    SUCCESS = "success"
    WARNING = "warning"
    DANGER = "danger"


def kinds(**states: str) -> dict[str, Kind]:
    """Make a table from states to their kinds:
    `kinds(success="completed", danger="failed timeout")`."""
    return {state: Kind(kind) for kind, names in states.items() for state in names.split()}


@cache
def _all_kinds() -> Mapping[str, Kind]:
    kinds_of_states: dict[str, Kind] = {}
    for path in frame.collect(lambda app: app.kinds):
        kinds_of_states |= import_string(path)
    return kinds_of_states


def kind_of(state: str) -> Kind:
    """The kind of a state of any app; PLAIN if it is not listed."""
    return _all_kinds().get(state, Kind.PLAIN)


def span(seconds: float) -> str:
    """A duration in its two largest units: `340 ms`, `12.3 s`, `3 min 12 s`, `2 d 4 h`."""
    seconds = abs(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)]
    for (unit, size), (small_unit, small_size) in pairwise(units):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def due(at: datetime, now: datetime) -> tuple[str, bool]:
    """`in 12 s`, or `3 s overdue`, and whether it is overdue."""
    left = (at - now).total_seconds()
    return (f"in {span(left)}", False) if left >= 0 else (f"{span(left)} overdue", True)


def labels(values: Mapping[str, Any]) -> str:
    """`zone=b, gpu=yes`."""
    return ", ".join(f"{key}={value}" for key, value in values.items())


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """`, did you mean 'core.echo'?`; empty if nothing is like it."""
    near = spelling.nearest(typed, known, most=2)
    return f", did you mean {' or '.join(map(repr, near))}?" if near else ""


def hex_lines(body: bytes) -> Iterator[str]:
    """The first bytes as offset, hexadecimal and ASCII, sixteen a line."""
    for start in range(0, min(len(body), HEX_LIMIT_BYTES), HEX_COLUMNS):
        part = body[start : min(start + HEX_COLUMNS, HEX_LIMIT_BYTES)]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{start:08x}  {part.hex(' '):<{3 * HEX_COLUMNS - 1}}  {text}"
    if len(body) > HEX_LIMIT_BYTES:
        yield f"... {len(body) - HEX_LIMIT_BYTES:,} more bytes"
