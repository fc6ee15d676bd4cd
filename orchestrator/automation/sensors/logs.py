"""The lines that sensors write to their standard error: the newest megabyte of each."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F, Value
from django.db.models.functions import Concat, Length

from orchestrator.automation.models import Sensor, SensorLog
from orchestrator.automation.models.sensors import LOG_BYTES

PIECE = 16_384
"""A piece that has grown to so many characters is not continued."""
LONGEST_LINES = 5_000


def append(sensor: Sensor, text: str, *, now: datetime) -> None:
    """Add whole lines; the oldest pieces go. PostgreSQL cannot store NUL."""
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    newest = SensorLog.objects.filter(sensor=sensor).order_by("-pk")
    last = newest.annotate(size=Length("text")).values_list("pk", "size").first()
    if last is not None and last[1] < PIECE:
        SensorLog.objects.filter(pk=last[0]).update(text=Concat(F("text"), Value(text)))
        return
    SensorLog.objects.create(sensor=sensor, text=text, at=now)
    _drop_beyond_limit(sensor)


def read(sensor: Sensor, *, lines: int) -> list[str]:
    """The newest lines, the oldest of them first."""
    found: list[str] = []
    for piece in SensorLog.objects.filter(sensor=sensor).order_by("-pk").iterator(chunk_size=10):
        found = piece.text.splitlines() + found
        if len(found) >= lines:
            break
    return found[-lines:]


def _drop_beyond_limit(sensor: Sensor) -> None:
    total = 0
    pieces = SensorLog.objects.filter(sensor=sensor).order_by("-pk")
    for pk, size in pieces.annotate(size=Length("text")).values_list("pk", "size"):
        total += size
        if total > LOG_BYTES:
            SensorLog.objects.filter(sensor=sensor, pk__lte=pk).delete()
            return
