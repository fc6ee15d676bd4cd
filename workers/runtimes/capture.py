"""Output streams of a command: the beginning is kept, and the last line, if it is the result."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from workers.runtimes import results

CHUNK_BYTES = 65_536


@dataclass
class Capture:
    """The beginning of an output stream. Reading goes on past what is kept: a command whose output
    nobody takes would stand still."""

    keep_bytes: int
    most_bytes: int
    """A stream longer than this is `over`, and its command is to be ended."""
    keeps_last_line: bool = False
    kept: bytearray = field(default_factory=bytearray)
    total_bytes: int = 0
    _end: bytearray = field(default_factory=bytearray)

    def read(self, fd: int) -> bool:
        """Take what is there; False at the end of the stream."""
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self.total_bytes += len(chunk)
        self.kept += chunk[: max(self.keep_bytes - len(self.kept), 0)]
        if self.keeps_last_line:
            self._end += chunk
            if len(self._end) > 2 * results.LIMIT_BYTES:
                del self._end[: -results.LIMIT_BYTES]
        return bool(chunk)

    @property
    def over(self) -> bool:
        return self.total_bytes > self.most_bytes

    @property
    def truncated(self) -> bool:
        return self.total_bytes > len(self.kept)

    @property
    def text(self) -> str:
        return results.text(self.kept.decode("utf-8", "replace"))

    @property
    def last_line(self) -> bytes:
        """The last line that is not blank, without its end."""
        return bytes(self._end).rstrip().rpartition(b"\n")[2].strip()
