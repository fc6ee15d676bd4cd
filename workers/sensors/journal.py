"""The log of a sensor: what it writes to its standard error, masked, bounded, kept for readers."""

from __future__ import annotations

import time
from collections.abc import Collection

import structlog
from django.db import Error as DatabaseError

from orchestrator.automation.models import Sensor
from orchestrator.automation.sensors import logs
from orchestrator.core import clock
from orchestrator.core.masking import Masker

log = structlog.get_logger(__name__)

WAITING_BYTES = 65_536
"""The most that waits to be written; what comes beyond it is counted and left out."""
EVERY_SECONDS = 1.0


class Journal:
    """Lines that wait to be written, at most once a second."""

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self._masker = Masker(())
        self._stream = self._masker.stream()
        self._waiting = bytearray()
        self._left_out = 0
        self._due_at = 0.0

    def mask(self, secrets: Collection[str]) -> None:
        """Mask these values from now on."""
        self._keep(self._stream.end())
        self._masker = Masker(secrets)
        self._stream = self._masker.stream()

    def masked(self, text: str) -> str:
        """The text, without those values."""
        return self._masker.text(text)

    def feed(self, chunk: bytes) -> None:
        """Add what the sensor wrote."""
        self._keep(self._stream.feed(chunk))

    def note(self, text: str) -> None:
        """Add a line of our own."""
        if self._waiting and not self._waiting.endswith(b"\n"):
            self._keep(b"\n")
        self._keep(self._masker.content(f"muster: {text}\n".encode("utf-8", "replace")))

    def write(self, *, at_end: bool = False) -> None:
        """Write whole lines, if it is time; all of it at the end."""
        if at_end:
            self._keep(self._stream.end())
        elif time.monotonic() < self._due_at:
            return
        until = len(self._waiting) if at_end else self._waiting.rfind(b"\n") + 1
        if not until and len(self._waiting) >= WAITING_BYTES:
            until = len(self._waiting)
        if not until:
            return
        self._due_at = time.monotonic() + EVERY_SECONDS
        text = bytes(self._waiting[:until]).decode("utf-8", "replace")
        if self._left_out:
            text = f"{text.rstrip()}\nmuster: {self._left_out:,} bytes left out\n"
        try:
            logs.append(self.sensor, text, now=clock.now())
        except DatabaseError as error:
            log.debug("log of a sensor not written", sensor=self.sensor.ref, error=repr(error))
            return
        del self._waiting[:until]
        self._left_out = 0

    def _keep(self, content: bytes) -> None:
        room = WAITING_BYTES - len(self._waiting)
        self._waiting += content[:room]
        self._left_out += max(len(content) - max(room, 0), 0)
