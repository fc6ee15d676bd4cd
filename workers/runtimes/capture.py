"""Captured output streams of a command: the beginning, and the last line if it is the result.

Secrets are masked on the way: a value that comes in two chunks is found, and none is cut in two.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from orchestrator.core.masking import Stream
from workers import hiding
from workers.isolated import results
from workers.runtimes.live import Live

CHUNK_BYTES = 65_536


@dataclass
class Capture:
    """The beginning of an output stream. Reading continues after that: a command whose output
    nobody reads would block."""

    keep_bytes: int
    most_bytes: int
    """A longer stream is `over`, and its command has to be ended."""
    keeps_last_line: bool = False
    live: Live | None = None
    """Takes the output while it comes."""
    kept: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    total_bytes: int = 0
    _end: bytearray = field(default_factory=bytearray)
    _secrets: list[Stream] = field(default_factory=hiding.streams)

    def read(self, fd: int) -> bool:
        """Read what is there; returns False at the end of the stream."""
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self.total_bytes += len(chunk)
        if self.live is not None:
            self.live.feed(chunk)
        if not self.truncated:
            masked = chunk
            for secrets in self._secrets:
                masked = secrets.feed(masked)
            self._keep(masked)
        if self.keeps_last_line:
            self._end += chunk
            if len(self._end) > 2 * results.LIMIT_BYTES:
                del self._end[: -results.LIMIT_BYTES]
        return bool(chunk)

    def end(self) -> None:
        """Keep what was held back, as a secret might have begun in it."""
        rest = b""
        for secrets in self._secrets:
            rest = secrets.feed(rest) + secrets.end()
        self._keep(rest)
        if self.live is not None:
            self.live.end()

    def _keep(self, content: bytes) -> None:
        room = self.keep_bytes - len(self.kept)
        self.truncated |= len(content) > room
        self.kept += content[:room]

    @property
    def over(self) -> bool:
        return self.total_bytes > self.most_bytes

    @property
    def text(self) -> str:
        return results.text(self.kept.decode("utf-8", "replace"))

    @property
    def last_line(self) -> bytes:
        """The last line that is not blank, without its end."""
        return bytes(self._end).rstrip().rpartition(b"\n")[2].strip()
