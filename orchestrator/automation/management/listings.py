"""The parts that the commands of automation share."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rich.console import RenderableType

from orchestrator.core import cursors
from orchestrator.core.management import arguments, output

STDIN = "-"


class ListingCommand(output.MusterCommand):
    """A command that lists rows, page by page."""

    def list_page(
        self,
        rows: QuerySet[Any],
        among: QuerySet[Any] | None,
        *,
        as_json: bool,
        limit: int,
        cursor: str | None,
        described: Callable[[Any], Any],
        table: Callable[[Sequence[Any]], RenderableType],
        none: str,
    ) -> None:
        """Show a page of rows with UUIDs, newest first; `none` is said if there is none."""
        below = None if cursor is None else cursors.read(cursor, UUID)
        page, more = cursors.newest(rows, limit=limit, below=below, among=among)
        if as_json:
            self.show_items([described(row) for row in page], next_cursor=more)
            return
        if page:
            self.show(table(page))
        else:
            self.stdout.write(none)
        self.lead_on(more, found=bool(page))


def of_packs(rows: QuerySet[Any], *, pack: str | None, retired: bool) -> QuerySet[Any]:
    """Those of one pack, if one is named; what has left its pack only if it is asked for."""
    if pack:
        rows = rows.filter(ref__startswith=f"{pack}.")
    return rows if retired else rows.filter(retired_at__isnull=True)


def payload(text: str) -> dict[str, Any]:
    """A JSON object, `@FILE` that contains one, or `-` for standard input."""
    if text == STDIN:
        text = sys.stdin.read()
        if text.startswith("@"):
            raise ArgumentTypeError("standard input: expected a JSON object")
    return arguments.json_object(text)
