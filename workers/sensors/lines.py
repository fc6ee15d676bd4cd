"""The protocol of sensors: a line of JSON each, both ways.

From the service: `{"configure": {"sensor", "triggers", "keys", "cursor", "parameters"}}`, again
when rules change; `{"ack": 7}` when everything up to the line with `"n": 7` is recorded.

From the sensor: `{"n": 7, "event": {"trigger": REF_OR_NUMBER, "payload": {}, "key": "..",
"occurred_at": ".."}, "cursor": {}}`, where each part may be missing; `{"alive": true}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.automation.sensors.reports import MOST_AT_ONCE, Report
from orchestrator.core.errors import MusterError
from orchestrator.core.json_values import is_whole

KEYS = ("n", "event", "cursor", "alive")
EVENT_KEYS = ("trigger", "payload", "key", "occurred_at")
BATCH_BYTES = 2_097_152
LARGEST_NUMBER = 2**53
SHOWN_CHARACTERS = 200
EARLIEST_YEAR, LATEST_YEAR = 1970, 9000
"""Of an event, as of all times in the API."""


class LineTooLong(MusterError):
    """The sensor writes a line that is longer than any event may be."""


class NoReport(MusterError):
    """The line says nothing that a sensor can say."""


@dataclass
class Batch:
    """Lines that are recorded together."""

    reports: list[Report] = field(default_factory=list)
    cursor: Mapping[str, Any] | None = None
    number: int | None = None
    """Of the last line that has one: what is acknowledged afterwards."""
    faults: list[str] = field(default_factory=list)
    lines: int = 0

    @property
    def has_content(self) -> bool:
        return bool(self.reports or self.faults) or self.cursor is not None

    def add(self, line: bytes) -> None:
        """Take the next line; one that says nothing is noted, and acknowledged like the others."""
        self.lines += 1
        try:
            said = _read(line)
            if is_whole(said.get("n")) and 0 <= said["n"] < LARGEST_NUMBER:
                self.number = said["n"]
            if "event" in said:
                self.reports.append(_report(said["event"]))
            if "cursor" in said:
                self.cursor = _mapping(said["cursor"], "cursor")
        except NoReport as error:
            shown = line[:SHOWN_CHARACTERS].decode("utf-8", "replace")
            self.faults.append(f"{error}: {shown}")


class Buffer:
    """Bytes of a pipe, handed over as whole lines. It never holds more than a line and a read."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Add what was read. Raises LineTooLong."""
        self._bytes += chunk
        if len(self._bytes) > self.longest and b"\n" not in self._bytes:
            raise LineTooLong(f"it wrote a line of more than {self.longest:,} bytes")

    def take(self) -> Batch:
        """The next lines, as many as are recorded together."""
        batch, start = Batch(), 0
        while batch.lines < MOST_AT_ONCE and start < BATCH_BYTES:
            end = self._bytes.find(b"\n", start)
            if end < 0:
                break
            if line := bytes(self._bytes[start:end]).strip():
                batch.add(line)
            start = end + 1
        del self._bytes[:start]
        return batch


def configure(**parts: Any) -> bytes:
    """The line that says what the sensor is to watch."""
    return _line({"configure": parts})


def acknowledged(number: int) -> bytes:
    """The line that says what is recorded."""
    return _line({"ack": number})


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _read(line: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise NoReport("expected a line of JSON; text belongs on standard error") from None
    said = _mapping(said, "line")
    if unknown := [name for name in said if name not in KEYS]:
        raise NoReport(f"expected {', '.join(KEYS)}, found {unknown[0]!r:.40}")
    return said


def _report(event: Any) -> Report:
    event = _mapping(event, "event")
    if unknown := [name for name in event if name not in EVENT_KEYS]:
        raise NoReport(f"event: expected {', '.join(EVENT_KEYS)}, found {unknown[0]!r:.40}")
    trigger, key = event.get("trigger"), event.get("key")
    if not (isinstance(trigger, str) or is_whole(trigger)):
        raise NoReport("event.trigger: expected a trigger type, or the number of a trigger")
    if key is not None and not isinstance(key, str):
        raise NoReport("event.key: expected a text")
    return Report(
        trigger=trigger,
        payload=_mapping(event.get("payload") or {}, "event.payload"),
        key=key,
        occurred_at=_moment(event.get("occurred_at")),
    )


def _moment(text: Any) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise NoReport("event.occurred_at: expected a time as in ISO 8601") from None
    if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
        expected = f"expected a year between {EARLIEST_YEAR} and {LATEST_YEAR}"
        raise NoReport(f"event.occurred_at: {expected}")
    # databases take no offset of a day, though Python does
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise NoReport(f"{what}: expected an object")
    return value
