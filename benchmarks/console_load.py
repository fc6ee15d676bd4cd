"""Tabs of the console in one process, which costs little: plain sockets on the stream.

A `tab` only listens; a `window` does as the page's script does: when something moved, it asks again
for what it shows, one request at a time and at most one a second. It runs in a process of its own
(`benchmarks.remote`). Its clock is the machine's monotonic one.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

from benchmarks.remote import BenchmarkError

OPEN_AT_ONCE = 25
LEAST_SECONDS, REST, MOST_SECONDS = 1.0, 4, 10.0
"""Of a window, as in `live.js`: at least so long from one request to the next, and from an answer
to the next request so many times as long as that answer took, up to a limit."""
PATIENCE_SECONDS = 120.0
ROW = re.compile(rb'<tr id="x-([0-9a-f-]{36})')
MOVED = b"event: moved"


class _Load:
    """All tabs and windows, in a loop of their own."""

    def __init__(self, url: str, cookie: str, live: str) -> None:
        place = urlsplit(url)
        self.host, self.port = place.hostname or "", place.port or 80
        self.cookie, self.live = cookie, live
        self.moved = 0
        """Events that came, to all tabs."""
        self.answers = 0
        self.seen: dict[str, float] = {}
        """The time at which each execution was first in an answer, by its id."""
        self.writers: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.ended = 0
        """Streams that the server has closed."""
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        future.result(PATIENCE_SECONDS)

    async def open(self, number: int, topics: str, page: str) -> None:
        for start in range(0, number, OPEN_AT_ONCE):
            some = range(start, min(number, start + OPEN_AT_ONCE))
            await asyncio.gather(*(self._open_one(topics, page) for _ in some))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for writer in self.writers:
            await _closed(writer)
        self.tasks.clear()
        self.writers.clear()

    def end(self) -> None:
        self.run(self.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _open_one(self, topics: str, page: str) -> None:
        reader, writer = await self._ask(f"{self.live}?topics={quote(topics)}")
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or b"text/event-stream" not in head:
            await _closed(writer)
            raise BenchmarkError(f"no stream: {head[:500].decode()}")
        await reader.readuntil(b": here")
        self.writers.add(writer)
        due = asyncio.Event()
        self._keep(self._listen(reader, due))
        if page:
            self._keep(self._follow(page, due))

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(self.loop.create_task(coroutine))

    async def _listen(self, reader: asyncio.StreamReader, due: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(MOVED):
                    self.moved += 1
                    due.set()
        self.ended += 1

    async def _follow(self, page: str, due: asyncio.Event) -> None:
        while True:
            await due.wait()
            due.clear()
            asked_at = time.monotonic()
            reader, writer = await self._ask(page, "X-Live: 1\r\n", "Connection: close\r\n")
            answer = await reader.read()
            came_at = time.monotonic()
            await _closed(writer)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise BenchmarkError(f"GET {page}: {answer[:300]!r}")
            self.answers += 1
            for id in ROW.findall(answer):
                self.seen.setdefault(id.decode(), came_at)
            rest = min(MOST_SECONDS, REST * (came_at - asked_at))
            await asyncio.sleep(max(asked_at + LEAST_SECONDS, came_at + rest) - time.monotonic())

    async def _ask(
        self, path: str, *headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 24)
        head = f"GET {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nCookie: {self.cookie}\r\n"
        writer.write(f"{head}{''.join(headers)}\r\n".encode())
        return reader, writer


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


_load: _Load | None = None


def begin(*, url: str, cookie: str, live: str) -> None:
    """Say where the console is, whose session it is, and the path of its stream."""
    global _load
    end()
    _load = _Load(url, cookie, live)


def end() -> None:
    """Close everything that `begin` has made."""
    global _load
    if _load is not None:
        _load.end()
        _load = None


def _begun() -> _Load:
    if _load is None:
        raise BenchmarkError("no load was begun")
    return _load


def open_tabs(*, number: int, topics: str, page: str = "") -> None:
    """Open so many tabs more; windows if there is a `page` for them to ask for again."""
    _begun().run(_begun().open(number, topics, page))


def close_tabs() -> None:
    _begun().run(_begun().close())


def counted() -> dict[str, int]:
    """The number of events and of answers that came to all tabs since the beginning, and of streams
    that the server has closed. Raises what a window failed of."""
    load = _begun()
    for task in list(load.tasks):
        if task.done():
            task.result()  # which raises what it failed of
    return {"moved": load.moved, "answers": load.answers, "ended": load.ended}


def seen() -> dict[str, float]:
    """The time at which each execution was first in an answer to a window, by its id."""
    return _begun().seen
