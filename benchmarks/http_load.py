"""A client of HTTP that costs little: some connections, each of which asks again at once.

It runs in a process of its own (`benchmarks.remote`), and knows no party: both sides of a ratio are
asked in the same way.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import uvloop


@dataclass
class _Load:
    """The state that all connections share."""

    requests: Iterator[bytes]
    due: Callable[[], float]
    """The time at which the next request is to be sent, by the clock of `time.perf_counter`."""
    statuses: set[int] = field(default_factory=set)
    times_ms: list[float] = field(default_factory=list)


class _Client(asyncio.Protocol):
    """One connection: it stays open, and the next request follows the answer."""

    def __init__(self, load: _Load) -> None:
        self.load = load
        self.over = asyncio.get_running_loop().create_future()
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has another base
        self._ask()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, mark, body = self.received.partition(b"\r\n\r\n")
        if not mark or len(body) < _length(head):
            return
        self.load.times_ms.append((time.perf_counter() - self.asked_at) * 1e3)
        self.load.statuses.add(int(head.split(b" ", 2)[1]))
        self.received = b""
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(error or ConnectionError("the server closed the connection"))

    def _ask(self) -> None:
        request = next(self.load.requests, None)
        if request is None:
            self.over.set_result(None)
            self.transport.close()
            return
        self.asked_at = self.load.due()
        if (early := self.asked_at - time.perf_counter()) > 0:
            asyncio.get_running_loop().call_later(early, self.transport.write, request)
        else:
            self.transport.write(request)


def ask(
    *, url: str, method: str, headers: Mapping[str, str], body: str, clients: int, count: int
) -> tuple[float, list[float], list[int]]:
    """Ask `count` times from `clients` connections; returns seconds, the milliseconds of each
    request, and the statuses that came."""
    request = _request(url, method, headers, body)
    return _asked(url, _Load(itertools.repeat(request, count), time.perf_counter), clients)


def ask_each(
    *,
    url: str,
    headers: Mapping[str, str],
    each: Sequence[Mapping[str, str]],
    body: str,
    clients: int,
    per_second: float = 0,
) -> tuple[float, list[float], list[int]]:
    """POST the body once with each of these headers, as fast as it goes, or so many a second: then
    the time of each counts from when it was due, whether or not a connection was free."""
    requests = [_request(url, "POST", {**headers, **own}, body) for own in each]
    if not per_second:
        return _asked(url, _Load(iter(requests), time.perf_counter), clients)
    began = time.perf_counter()
    due = (began + number / per_second for number in itertools.count())
    return _asked(url, _Load(iter(requests), partial(next, due)), clients)


def _request(url: str, method: str, headers: Mapping[str, str], body: str) -> bytes:
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    lines = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", body]).encode()


def _asked(url: str, load: _Load, clients: int) -> tuple[float, list[float], list[int]]:
    parts = urlsplit(url)
    began = time.perf_counter()
    uvloop.run(_ask_all(load, parts.hostname or "", parts.port or 80, clients))
    return time.perf_counter() - began, load.times_ms, sorted(load.statuses)


async def _ask_all(load: _Load, host: str, port: int, clients: int) -> None:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: _Client(load), host, port) for _ in range(clients)]
    await asyncio.gather(*(client.over for _, client in made))


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError(f"an answer without a length: {head[:200]!r}")
