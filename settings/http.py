"""Serves Django over ASGI from threads that stay, each with a database connection that stays.

Django's own handler gives each request a thread of its own. A connection belongs to its thread, so
each request then opens one, which `CONN_MAX_AGE = None` lets nobody close; and a pool for them
still leaves the changes of thread between middlewares, which cost more than an answer does.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any, TypeVar

from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import set_script_prefix

T = TypeVar("T")

WAITING_PER_THREAD = 32
"""More requests than this would only wait for longer than their callers do."""

PROBES = "/api/v1/health/"
"""Answered from threads of their own: a process whose database hangs is alive all the same."""


class ThreadedHandler(ASGIHandler):
    """As many requests at once as there are threads, some more waiting, 503 for the rest.

    Async views and async iterators work as under any sync server: the first are run to their
    end in the thread, the second are drained by the event loop.
    """

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(settings.HTTP_THREADS, "http")
        self.probes = ThreadPoolExecutor(2, "http-probe")
        self.underway = 0
        self.limit = settings.HTTP_THREADS * (1 + WAITING_PER_THREAD)
        self.patience_seconds = settings.MUSTER.database_statement_timeout_seconds + 5
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        """Sync all the way: no request changes threads between two middlewares."""
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request. Needs no thread-sensitive context: no thread is shared with another."""
        if scope["type"] != "http":
            raise ValueError(f"Django answers http, not {scope['type']}")
        await self.handle(scope, receive, send)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            scope, body = await _read(scope, receive)
        except RequestAborted:
            return
        response = await self._answer(scope, body)
        if not isinstance(response, StreamingHttpResponse):
            await self.send_response(response, send)
            return
        if not response.is_async:
            response.streaming_content = self._drained(iter(response))
        try:
            await self.send_response(response, send)
        finally:
            await self._in_thread(response.close)

    async def _answer(self, scope: Any, body: BytesIO) -> HttpResponseBase:
        probe = scope["path"].startswith(PROBES)
        if not probe and self.underway >= self.limit:
            return _busy("More requests are waiting than this server will answer in time")
        try:
            async with asyncio.timeout(self.patience_seconds):
                return await self._in_thread(self._respond, scope, body, probe=probe)
        except TimeoutError:
            return _busy("The request was begun, or waited to be, and did not end in time")

    async def _in_thread(self, call: Callable[..., T], *arguments: Any, probe: bool = False) -> T:
        """Run it in a thread; what has not begun when its caller gives up is never begun."""
        context = contextvars.copy_context()
        future = (self.probes if probe else self.threads).submit(context.run, call, *arguments)
        if not probe:
            # until the thread is free, not until the caller has given up
            loop = asyncio.get_running_loop()
            self.underway += 1
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._free))
        return await asyncio.wrap_future(future)

    def _free(self) -> None:
        self.underway -= 1

    def _respond(self, scope: Any, body: BytesIO) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refused = self.create_request(scope, body)
        response = self.get_response(request) if request else refused
        assert response is not None  # one of the two
        response._handler_class = self.__class__  # type: ignore[attr-defined]
        if not response.streaming:
            response.close()  # in the thread that has the connection
        return response

    async def _drained(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """A sync iterator, a file for example, read in threads."""
        while (chunk := await self._in_thread(next, chunks, None)) is not None:
            yield chunk


async def _read(scope: Any, receive: Any) -> tuple[Any, BytesIO]:
    """The body, up to the limit; beyond it the scope says so and whoever asks for the body is
    told by Django: `RequestDataTooBig` is raised by Content-Length, which a stream has not."""
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    if lengths and int(lengths[0]) > limit:
        return scope, BytesIO()
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            headers = [*scope["headers"], (b"content-length", b"%d" % len(body))]
            return {**scope, "headers": headers}, BytesIO()
    return scope, BytesIO(body)


def _busy(detail: str) -> HttpResponse:
    content = {
        "type": "urn:muster:problem:busy",
        "title": "The server is too busy",
        "status": 503,
        "detail": f"{detail}. With an idempotency_key, asking again is safe",
        "errors": [],
    }
    return HttpResponse(
        json.dumps(content),
        status=503,
        content_type="application/problem+json",
        headers={"Retry-After": "5"},
    )
