"""A thousand listeners in one process, which costs little: each reads its stream and notes how old
each notification is when it comes.

It runs in a process of its own (`benchmarks.remote`). Its clock is that of the same machine.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from benchmarks.remote import BenchmarkError

AT = re.compile(rb'"at":"([^"]+)"')
OPENED = b"\nid: "
OPEN_AT_ONCE = 50


class _Listener(asyncio.Protocol):
    """One stream."""

    def __init__(self, load: _Load, request: bytes) -> None:
        self.load, self.request = load, request
        self.is_open = asyncio.get_running_loop().create_future()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)  # type: ignore[attr-defined] # of a stream

    def data_received(self, data: bytes) -> None:
        now = time.time()
        if not self.is_open.done():
            self._rest += data
            if OPENED in self._rest:
                self.is_open.set_result(None)
                self._rest = b""
            elif not self._rest.startswith(b"HTTP/1.1 200"):
                self.is_open.set_exception(BenchmarkError(self._rest.decode()[:500]))
            return
        self.load.gaps += data.count(b"event: gap")
        text = self._rest + data
        end = text.rfind(b"\n\n") + 1
        for at in AT.findall(text[:end]):
            self.load.note(at, now)
        self._rest = text[end:]

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_open.done():
            self.is_open.set_exception(BenchmarkError("the server closed a stream"))


class _Load:
    """All streams, in a loop of their own."""

    def __init__(self) -> None:
        self.ages_ms: list[float] = []
        self.gaps = 0
        self.listeners: list[_Listener] = []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def note(self, at: bytes, now: float) -> None:
        self.ages_ms.append((now - datetime.fromisoformat(at.decode()).timestamp()) * 1e3)

    async def open(self, url: str, streams: Sequence[tuple[str, str]]) -> None:
        place = urlsplit(url)
        for start in range(0, len(streams), OPEN_AT_ONCE):
            opened = []
            for token, query in streams[start : start + OPEN_AT_ONCE]:
                head = f"GET /api/v1/stream?{query} HTTP/1.1\r\nHost: {place.netloc}\r\n"
                request = f"{head}Authorization: Bearer {token}\r\n\r\n".encode()
                _, listener = await self.loop.create_connection(
                    lambda request=request: _Listener(self, request),  # type: ignore[misc]
                    place.hostname or "",
                    place.port or 80,
                )
                opened.append(listener)
            await asyncio.gather(*(each.is_open for each in opened))
            self.listeners += opened


_load: _Load | None = None


def listen(*, url: str, streams: Sequence[tuple[str, str]]) -> None:
    """Open a stream for each token and query, and return once all of them are open."""
    global _load
    _load = _Load()
    asyncio.run_coroutine_threadsafe(_load.open(url, streams), _load.loop).result(240)


def begin() -> None:
    """Forget what has come so far."""
    assert _load is not None
    _load.ages_ms, _load.gaps = [], 0


def heard() -> tuple[list[float], int]:
    """The ages in ms of all that came, and the number of gaps."""
    assert _load is not None
    return _load.ages_ms, _load.gaps
