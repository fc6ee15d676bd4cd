"""The changes that people made to a row by a page, and their reasons: the admin's journal, which
the admin shows, too.

Rules, sensors, policies, the schedule and events keep no reason of their own. The audit takes each
line of the journal, see `audit.people`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone

LINES = 10


@dataclass(frozen=True)
class Line:
    """Something that was done."""

    at: datetime
    by: str
    text: str


def note(request: HttpRequest, row: Model, text: str) -> None:
    """Keep what the user of this request did to a row, and why."""
    assert request.user.pk is not None  # staff
    LogEntry.objects.log_actions(request.user.pk, [row], CHANGE, text, single_object=True)


def lines(row: Model) -> Sequence[Line]:
    """The changes that were made to a row, the newest first."""
    kind = ContentType.objects.get_for_model(row)
    entries = LogEntry.objects.filter(content_type=kind, object_id=str(row.pk))
    return [
        Line(
            timezone.localtime(each.action_time),
            each.user.get_username(),
            each.get_change_message(),
        )
        for each in entries.select_related("user").order_by("-pk")[:LINES]
    ]
