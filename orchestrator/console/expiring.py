"""Open inquiries that expire soon, for the strip on every page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.console.kept import for_all
from orchestrator.console.look import Look
from orchestrator.core import words
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.shown import inquiries as shown

SOON = timedelta(minutes=15)
READ_MAX = 100


class Soon(NamedTuple):
    """Of the open inquiries that the user may see, how many expire soon, and the first of them."""

    number: int
    first: UUID
    question: str
    left: str


def soon(look: Look) -> Soon | None:
    """Those that expire soon; None without any. Read once for everybody, by an index."""
    if not look.may("inquiries.read"):
        return None
    found: Sequence[Inquiry] = for_all("expiring", lambda: _first(look))
    mine = [each for each in found if look.may("inquiries.read", each.place)]
    if not mine:
        return None
    first = mine[0]
    left = words.due(first.expires_at, look.now)[0]
    return Soon(len(mine), first.pk, shown.line(first), left)


def rows(now: datetime) -> QuerySet[Inquiry]:
    """Those that expire soon, of everybody."""
    return Inquiry.objects.open().filter(expires_at__range=(now, now + SOON))


def _first(look: Look) -> list[Inquiry]:
    columns = rows(look.now).only("pk", "pack", "prompt", "expires_at")
    return list(columns.order_by("expires_at")[:READ_MAX])
