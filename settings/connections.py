"""uvicorn's connections: limits for the headers of requests, and answers sent in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0
"""The headers of a request arrive within this time, from the first byte on; those of the first one
from the connection on."""

HEADER_BYTES = 65_536
"""Most bytes of a request's address and headers together."""


class TooManyHeaders(Exception):
    """More than HEADER_BYTES; the parser passes it on as an error of the request."""


class Joined:
    """A transport that sends two pieces in one call to the system: uvicorn writes the headers of an
    answer, then its body. A piece that no other follows is sent in the loop's next turn."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._first = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._first:
            joined, self._first = self._first + data, b""
            self._transport.write(joined)
        elif data:
            self._first = data
            self._loop.call_soon(self._send_first)

    def close(self) -> None:
        self._send_first()
        self._transport.close()

    def _send_first(self) -> None:
        if self._first:
            first, self._first = self._first, b""
            self._transport.write(first)


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose next request does not come, and refuses endless headers.

    uvicorn itself limits the pause between an answer and the first byte of the next request, and
    nothing else.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_upgraded = False

    def connection_made(self, transport: Any) -> None:
        joined: Any = Joined(transport, self.loop)
        super().connection_made(joined)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._timer is None and not self.transport.is_closing():
            self._wait_for_headers()

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to another protocol: no request comes on it any more."""
        self._is_upgraded = True
        super().handle_websocket_upgrade()

    # --- called by the parser

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def _count(self, part: bytes) -> None:
        self._header_bytes += len(part)
        if self._header_bytes > HEADER_BYTES:
            raise TooManyHeaders

    def _wait_for_headers(self) -> None:
        if not self._is_upgraded:
            self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
