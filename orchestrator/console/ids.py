"""Rows by a part of their id, as lists and commands print it, for the palette."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from django.db.models import Model, QuerySet

from orchestrator.core.models.time_ordered import id_ends_with, ids_beginning_with

Row = TypeVar("Row", bound=Model)

PART = re.compile(r"[0-9a-f]{4,32}|[0-9a-f]{8,32}…[0-9a-f]{0,32}|…[0-9a-f]{3,32}")
PARTS_MAX = 2
"""Words of one text that are looked for; each takes one or two queries."""
MATCHES_MAX = 5
LOOKED_AT = 5_000
"""Rows that are compared with a part: the newest ones that begin as it says."""
DIGITS_OF_A_MINUTE = 8
"""Beginnings that are shorter have too many rows."""


def found(visible: QuerySet[Row], words: Sequence[str]) -> Iterator[Row]:
    """Those of the rows of which one of the words is the id, its beginning or its end, or both with
    `…` between them."""
    parts = [word.replace("-", "") for word in words]
    for part in [each for each in parts if PART.fullmatch(each)][:PARTS_MAX]:
        beginning, dots, end = part.partition("…")
        if dots:
            yield from _between(visible, beginning, end)
        else:
            yield from _between(visible, part, "") or _between(visible, "", part)


def _between(visible: QuerySet[Row], beginning: str, end: str) -> list[Row]:
    newest = visible.model._default_manager.order_by("-pk")
    if beginning:
        if len(beginning) < DIGITS_OF_A_MINUTE:
            return []
        newest = newest.filter(pk__range=ids_beginning_with(beginning))
    # cut before they are compared: an end that no row has would have the whole table read
    rows = visible.filter(pk__in=newest[:LOOKED_AT].values("pk"))
    if end:
        rows = rows.filter(id_ends_with(end))
    return list(rows.order_by("-pk")[:MATCHES_MAX])
