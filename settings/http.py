"""Serve Django over ASGI from permanent threads, each with a permanent database connection.

Django's own handler runs each request in a new thread. A connection belongs to its thread, so each
request would open one, which `CONN_MAX_AGE = None` never closes. A pool of connections would still
leave the changes of thread between middlewares, which cost more than an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import select
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from io import BytesIO
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.db import connections
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import set_script_prefix
from django.utils.module_loading import import_string

T = TypeVar("T")

WAITING_PER_THREAD = 32
"""More requests than this would only wait for longer than their callers."""

BODY_SECONDS = 30
"""A whole body arrives within this time."""

BODY_GAP_SECONDS = 10
"""The next piece of it arrives within this time."""

DOOR_SECONDS = 10
"""A caller who sends a body in pieces is known or refused within this time."""

PAGE_BODY_BYTES = 262_144
"""Largest body for a page outside the API: a form, of a caller who may be anybody."""

BODIES_BYTES = 134_217_728
"""Most bytes of bodies in memory, those of all requests together."""

STRANGERS_BYTES = 33_554_432
"""The same for the paths at which strangers may send, which have this much of their own."""

STRANGER_THREADS = 4
"""Those paths have threads of their own: a flood from outside keeps nobody else waiting."""

PROBES = ("/health/", "/api/v1/health/")
LOGIN = "/admin/login/"


class Lane:
    """Threads of their own for one kind of request; some more requests wait for them.

    An executor of the standard library wakes the loop twice for each call, and takes a dozen locks:
    that was a tenth of the time of a request.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.most_threads = name, threads
        self.limit = threads * (1 + WAITING_PER_THREAD)
        self.underway = 0
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    @property
    def is_full(self) -> bool:
        return self.underway >= self.limit

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run it in a thread; if its caller gives up before it has started, it never starts."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # until the thread is free, not until the caller has given up
        self.underway += 1
        if len(self._threads) < min(self.underway, self.most_threads):
            name = f"{self.name}_{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()
        call = partial(contextvars.copy_context().run, call, *arguments)
        self._jobs.put(_Job(call, future, loop))
        return await future

    def shutdown(self) -> None:
        """Let the threads do what waits for them, and end."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            value = error = None
            if not job.future.cancelled():
                try:
                    value = job.call()
                except BaseException as raised:  # noqa: BLE001 - raised where it is awaited
                    error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                job.loop.call_soon_threadsafe(self._end, job.future, value, error)
            del job, value, error  # not until the next job: they hold a request and its answer

    def _end(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self.underway -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class _Job(NamedTuple):
    call: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Bodies:
    """The bodies in memory, and their size together."""

    def __init__(self, limit: int) -> None:
        self.size, self.limit = 0, limit

    @contextlib.contextmanager
    def one(self) -> Iterator[bytearray]:
        body = bytearray()
        try:
            yield body
        finally:
            self.size -= len(body)

    def add(self, body: bytearray, piece: bytes) -> None:
        """Append to a body. Raises _Refused if all bodies together get too large."""
        body += piece
        self.size += len(piece)
        if self.size > self.limit:
            raise _Refused(_busy("More is being sent than this server can hold"))


class ThreadedHandler(ASGIHandler):
    """Handles as many requests at once as there are threads; some more wait, the rest get 503.

    Four kinds have threads of their own. Probes: a process whose database hangs is still alive.
    Logins: hashing a password takes a processor for a while. Unknown callers who send a body in
    pieces, and the paths at which strangers may send, which are webhooks: however many they are,
    they wait for each other, and not before the rest.

    Async views and async iterators work as under any sync server: the first are run to their
    end in the thread, the second are drained by the event loop.
    """

    def __init__(self) -> None:
        self.requests = Lane("http", settings.HTTP_THREADS)
        self.probes = Lane("http-probe", 2)
        self.logins = Lane("http-login", 2)
        self.doors = Lane("http-door", 2)
        self.strangers = Lane("http-stranger", STRANGER_THREADS)
        self.is_open = import_string(settings.HTTP_OPEN_TO_STRANGERS)
        self.bodies = Bodies(BODIES_BYTES)
        self.bodies_of_strangers = Bodies(STRANGERS_BYTES)
        self.patience_seconds = settings.MUSTER.database_statement_timeout_seconds + 5
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        """Load all middlewares as sync: no request changes threads between two of them."""
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request. Needs no thread-sensitive context: no thread is shared with
        another."""
        if scope["type"] != "http":
            raise ValueError(f"Django answers http, not {scope['type']}")
        await self.handle(scope, receive, send)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        bodies = self.bodies_of_strangers if self.is_open(scope["path"]) else self.bodies
        with bodies.one() as body:
            try:
                scope, is_whole = await self._read(scope, receive, bodies, body)
            except RequestAborted:
                return
            except TimeoutError:
                response: HttpResponseBase = _late()
                is_whole = False
            except _Refused as refused:
                response = refused.response
                response["Cache-Control"] = "no-store"  # no middleware sees it
                is_whole = False
            else:
                response = await self._answer(scope, BytesIO(body if is_whole else b""))
        if not is_whole:
            response["Connection"] = "close"  # the rest of the body is not read
        if not isinstance(response, StreamingHttpResponse):
            await self.send_response(response, send)
            return
        if not response.is_async:
            response.streaming_content = self._drained(iter(response))
        try:
            await self._send_stream(response, receive, send)
        finally:
            await self.requests.run(response.close)

    async def _send_stream(self, response: Any, receive: Any, send: Any) -> None:
        """Send a stream to its end, or until its reader is gone: some streams wait for long."""
        sending = asyncio.ensure_future(self.send_response(response, send))
        leaving = asyncio.ensure_future(_departure(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for each in (sending, leaving):
                each.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _read(
        self, scope: Any, receive: Any, bodies: Bodies, body: bytearray
    ) -> tuple[Any, bool]:
        """Read the body up to the limit; returns the scope, and True if all was read. Beyond the
        limit, the scope gets a Content-Length, which a stream lacks, so that Django raises
        `RequestDataTooBig` when the body is accessed.

        What comes in more than one piece is read on only for a caller who is admitted: a stranger
        could fill the memory with bodies that never end. Raises RequestAborted, TimeoutError and
        _Refused.
        """
        is_api = scope["path"].startswith(settings.API_PATHS)
        limit = settings.LARGE_BODIES.get(scope["path"], settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if lengths and int(lengths[0]) > limit:
            return scope, False
        is_admitted = not is_api  # other pages identify their callers by a session
        clock = asyncio.get_running_loop().time
        until = clock() + BODY_SECONDS
        while True:
            async with asyncio.timeout_at(min(until, clock() + BODY_GAP_SECONDS)):
                message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestAborted
            bodies.add(body, message.get("body", b""))
            if len(body) > limit:
                headers = [*scope["headers"], (b"content-length", b"%d" % len(body))]
                return {**scope, "headers": headers}, False
            if not is_api and len(body) > PAGE_BODY_BYTES:
                raise _Refused(_too_large())
            if not message.get("more_body", False):
                return scope, True
            if not is_admitted and (refusal := await self._refused_at_the_door(scope)):
                raise _Refused(refusal)
            is_admitted = True

    async def _refused_at_the_door(self, scope: Any) -> HttpResponseBase | None:
        if self.doors.is_full:
            return _busy("More callers are waiting to be identified than this server will in time")
        try:
            async with asyncio.timeout(DOOR_SECONDS):
                return await self.doors.run(self._refusal, scope)
        except TimeoutError:
            return _busy("The caller was not identified in time")

    def _refusal(self, scope: Any) -> HttpResponseBase | None:
        """The answer to a caller who is not admitted; None if the caller is."""
        request, refused = self._begun(scope, BytesIO())
        if request is None:
            return refused
        response: HttpResponse | None = import_string(settings.HTTP_REFUSAL)(request)
        return response

    async def _answer(self, scope: Any, body: BytesIO) -> HttpResponseBase:
        lane = self._lane(scope)
        if lane.is_full:
            return _busy("More requests are waiting than this server will answer in time")
        try:
            async with asyncio.timeout(self.patience_seconds):
                return await lane.run(self._respond, scope, body)
        except TimeoutError:
            return _busy("The request did not end in time")

    def _lane(self, scope: Any) -> Lane:
        path = scope["path"]
        if path.startswith(PROBES):
            return self.probes
        if self.is_open(path):
            return self.strangers
        return self.logins if path == LOGIN and scope["method"] == "POST" else self.requests

    def _begun(
        self, scope: Any, body: BytesIO
    ) -> tuple[ASGIRequest, None] | tuple[None, HttpResponseBase]:
        """The request, or None and the response that refuses it."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        _spare_health_checks()
        return self.create_request(scope, body)

    def _respond(self, scope: Any, body: BytesIO) -> HttpResponseBase:
        request, refused = self._begun(scope, body)
        response = self.get_response(request) if request else refused
        assert response is not None  # one of the two
        response._handler_class = self.__class__  # type: ignore[attr-defined]
        if not response.streaming:
            response.close()  # in the thread that has the connection
        return response

    async def _drained(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Iterate in threads over a sync iterator, such as a file."""
        while (chunk := await self.requests.run(next, chunks, None)) is not None:
            yield chunk


async def _departure(receive: Any) -> None:
    """Wait until the reader has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _spare_health_checks() -> None:
    """Take a connection for sound while the server says nothing: one that it has closed can be
    read. A statement to ask it, before each request, was a tenth of what a small one costs."""
    connection: Any  # the stubs lack a part of it
    for connection in connections.all(initialized_only=True):
        raw = connection.connection
        if raw is not None and connection.vendor == "postgresql" and not raw.closed:
            poll = select.poll()
            poll.register(raw.fileno(), select.POLLIN)
            connection.health_check_done = not poll.poll(0)


class _Refused(Exception):
    """The caller may not send this body."""

    def __init__(self, response: HttpResponseBase) -> None:
        super().__init__()
        self.response = response


def _busy(detail: str) -> HttpResponse:
    detail = f"{detail}. With an idempotency_key, asking again is safe"
    return _problem(503, "busy", "The server is too busy", detail, {"Retry-After": "5"})


def _late() -> HttpResponse:
    detail = (
        f"A body arrives within {BODY_SECONDS} s, with no pause of more than {BODY_GAP_SECONDS} s. "
        "Nothing was done"
    )
    return _problem(408, "late", "The request did not arrive in time", detail)


def _too_large() -> HttpResponse:
    detail = f"A form has at most {PAGE_BODY_BYTES} bytes. Nothing was done"
    return _problem(413, "too-large", "The request is too large", detail)


def _problem(
    status: int, kind: str, title: str, detail: str, headers: dict[str, str] | None = None
) -> HttpResponse:
    content = {
        "type": f"urn:muster:problem:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "errors": [],
    }
    return HttpResponse(
        json.dumps(content),
        status=status,
        content_type="application/problem+json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )
