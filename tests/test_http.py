"""How Django is served: threads that stay, bodies that end, and an end to waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from django.core.exceptions import RequestDataTooBig
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from settings import http
from settings.connections import Joined
from settings.http import ThreadedHandler

View = Callable[[HttpRequest], HttpResponseBase]
LIMIT = 100
API = "/api/v1/executions"


class Handler(ThreadedHandler):
    """Answers everything with one view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def get_response(self, request: HttpRequest) -> Any:
        return self.view(request)


@pytest.fixture
def serve(settings) -> Iterator[Callable[[View], Handler]]:
    settings.HTTP_THREADS = 1
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = LIMIT
    made: list[Handler] = []

    def serve(view: View) -> Handler:
        made.append(Handler(view))
        return made[-1]

    yield serve
    for handler in made:
        lanes = handler.requests, handler.probes, handler.logins, handler.doors, handler.strangers
        for lane in lanes:
            lane.shutdown()


class Answer:
    """What a client of one request sees."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def content(self) -> bytes:
        return b"".join(message["body"] for message in self.messages if "body" in message)


async def ask(
    handler: Handler,
    *chunks: bytes,
    path: str = "/",
    headers: Any = (),
    gone: bool = False,
    pause_seconds: float = 0,
) -> Answer:
    """One request, its body in chunks, with a pause after the first."""
    last = len(chunks) - 1
    messages = [
        {"type": "http.request", "body": chunk, "more_body": n < last or gone}
        for n, chunk in enumerate(chunks or [b""])
    ]
    messages.append({"type": "http.disconnect"})
    answer = Answer()

    async def receive() -> Any:
        if pause_seconds and len(messages) == len(chunks):
            await asyncio.sleep(pause_seconds)
        if len(messages) == 1 and not gone:
            await asyncio.Event().wait()  # the caller stays
        return messages.pop(0)

    async def send(message: Any) -> None:
        answer.messages.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers)}
    await handler(scope, receive, send)
    answer.messages.append({"unread": len(messages) - 1})
    return answer


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def read_body(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(request.body)
    except RequestDataTooBig:
        return HttpResponse("too big", status=413)


def test_body_arrives_whole(serve):
    assert run(ask(serve(read_body), b"ab", b"", b"c" * (LIMIT - 2))).content == b"ab" + b"c" * 98


def test_stream_is_read_up_to_the_limit_and_no_further(serve):
    answer = run(ask(serve(read_body), *[b"x" * 60] * 50))
    assert answer.status == 413
    assert answer.messages[-1] == {"unread": 48}


def test_length_beyond_the_limit_is_believed_without_reading(serve):
    header = (b"content-length", b"101")
    answer = run(ask(serve(read_body), b"x" * 60, b"x" * 41, headers=[header]))
    assert answer.status == 413
    assert answer.messages[-1] == {"unread": 2}


def test_caller_that_left_while_sending_is_not_answered(serve):
    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError("nobody is there to read it")

    assert run(ask(serve(view), b"x", gone=True)).messages == [{"unread": -1}]


def test_body_that_does_not_come_is_waited_for_no_longer_than_it_may(serve, monkeypatch):
    monkeypatch.setattr(http, "BODY_GAP_SECONDS", 0.05)
    answer = run(ask(serve(read_body), b"x", b"y", pause_seconds=5))
    assert answer.status == 408
    assert (b"Connection", b"close") in answer.messages[0]["headers"]


def test_body_that_drips_ends_with_the_time_for_a_whole_body(serve, monkeypatch):
    monkeypatch.setattr(http, "BODY_SECONDS", 0.05)
    assert run(ask(serve(read_body), b"x", b"y", pause_seconds=5)).status == 408


def test_stranger_is_refused_after_the_first_piece_of_a_body(serve, settings):
    settings.HTTP_REFUSAL = f"{__name__}.refuse"
    answer = run(ask(serve(read_body), *[b"x"] * 50, path=API))
    assert answer.status == 401
    assert (b"Connection", b"close") in answer.messages[0]["headers"]
    assert answer.messages[-1] == {"unread": 49}


def test_strangers_who_send_in_pieces_wait_for_each_other_and_nobody_for_them(serve, settings):
    settings.HTTP_REFUSAL = f"{__name__}.refuse_slowly"
    handler = serve(read_body)
    handler.doors.limit = 2

    async def crowd() -> tuple[list[int], Answer]:
        strangers = [asyncio.create_task(ask(handler, b"x", b"y", path=API)) for _ in range(20)]
        await asyncio.sleep(0.05)
        known = await asyncio.wait_for(ask(handler, b"x"), 1)
        open_the_door.set()
        return [answer.status for answer in await asyncio.gather(*strangers)], known

    statuses, known = run(crowd())
    assert known.content == b"x"
    assert sorted(statuses) == [401] * 2 + [503] * 18


def test_stranger_who_cannot_be_looked_up_in_time_is_told_to_come_back(
    serve, settings, monkeypatch
):
    monkeypatch.setattr(http, "DOOR_SECONDS", 0.05)
    settings.HTTP_REFUSAL = f"{__name__}.refuse_slowly"
    open_the_door.clear()
    answer = run(ask(serve(read_body), b"x", b"y", path=API))
    open_the_door.set()
    assert answer.status == 503


def test_form_is_no_larger_than_forms_are(serve, settings, monkeypatch):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000
    monkeypatch.setattr(http, "PAGE_BODY_BYTES", LIMIT)
    answer = run(ask(serve(read_body), *[b"x" * 60] * 50))
    assert answer.status == 413
    assert answer.messages[-1] == {"unread": 48}
    assert run(ask(serve(read_body), b"x" * 500, path=API)).status == 200


def test_bodies_together_have_a_limit_that_is_given_back(serve, monkeypatch):
    monkeypatch.setattr(http, "BODIES_BYTES", 150)
    handler = serve(read_body)

    async def crowd() -> list[int]:
        slow = asyncio.create_task(ask(handler, b"x" * 80, b"x", pause_seconds=0.2))
        await asyncio.sleep(0.05)
        return [(await ask(handler, b"x" * 80)).status, (await slow).status]

    assert run(crowd()) == [503, 200]
    assert handler.bodies.size == 0
    assert run(ask(handler, b"x" * 80)).status == 200


def test_request_is_answered_while_many_passwords_are_looked_at(serve):
    free = threading.Event()

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(free.wait(60)) if request.path == http.LOGIN else "answered")

    handler = serve(view)

    async def crowd() -> tuple[bytes, int]:
        logins = [asyncio.create_task(ask(handler, path=http.LOGIN)) for _ in range(32)]
        await asyncio.sleep(0.05)
        other = await asyncio.wait_for(ask(handler), 30)
        free.set()
        return other.content, len(await asyncio.gather(*logins))

    assert run(crowd()) == (b"answered", 32)


def test_caller_is_asked_for_once_however_many_pieces_come(serve, settings):
    settings.HTTP_REFUSAL = f"{__name__}.admit"
    asked.clear()
    assert run(ask(serve(read_body), b"", b"", b"x", b"y", path=API)).content == b"xy"
    assert len(asked) == 1


def test_who_sends_all_at_once_is_not_asked_before(serve, settings):
    settings.HTTP_REFUSAL = f"{__name__}.refuse"
    assert run(ask(serve(read_body), b"x", path=API)).content == b"x"


open_the_door = threading.Event()


def refuse_slowly(request: HttpRequest) -> HttpResponse:
    open_the_door.wait(10)
    return HttpResponse(status=401)


def refuse(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=401)


def admit(request: HttpRequest) -> None:
    asked.append(request.path)


asked: list[str] = []


def test_requests_share_a_thread_that_stays(serve):
    handler = serve(lambda request: HttpResponse(str(threading.get_ident())))

    async def both() -> set[bytes]:
        return {(await ask(handler)).content, (await ask(handler)).content}

    assert len(run(both())) == 1


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_connection_is_checked_only_when_the_server_has_said_something(
    serve, database, monkeypatch
):
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    checked = []

    def is_usable(of: Any) -> bool:
        checked.append(of.connection.info.backend_pid)
        return usable(of)

    kind = type(connections["default"])
    usable = kind.is_usable
    monkeypatch.setattr(kind, "is_usable", is_usable)

    def session(_: HttpRequest) -> HttpResponse:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return HttpResponse(str(cursor.fetchone()[0]))

    def pid() -> int:
        return int(run(ask(handler)).content)

    handler = serve(session)
    first = pid()
    assert (pid(), checked) == (first, [])
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert pid() != first
    assert checked == [first]
    run(handler.requests.run(connections.close_all))


def test_files_and_other_sync_iterators_are_streamed(serve):
    handler = serve(lambda request: StreamingHttpResponse(iter([b"a", b"b"])))
    assert run(ask(handler)).content == b"ab"


def test_async_iterators_are_streamed(serve):
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0)
        yield b"b"

    assert run(ask(serve(lambda request: StreamingHttpResponse(chunks())))).content == b"ab"


def test_stream_ends_when_its_reader_has_gone(serve):
    ended = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    handler = serve(lambda request: StreamingHttpResponse(chunks()))

    async def leave() -> list[Any]:
        sent: list[Any] = []
        left = asyncio.Event()
        body: list[Any] = [{"type": "http.request", "body": b""}]

        async def receive() -> Any:
            if body:
                return body.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message.get("body"):
                left.set()

        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        async with asyncio.timeout(60):
            await handler(scope, receive, send)
        return sent

    assert [each.get("body") for each in run(leave())] == [None, b"a"]
    assert ended == [True]


def test_more_than_can_be_answered_in_time_is_refused_at_once(serve):
    free = threading.Event()
    handler = serve(lambda request: HttpResponse(str(free.wait(60))))
    handler.requests.limit = 1

    async def crowd() -> tuple[Answer, Answer, Answer]:
        first = asyncio.create_task(ask(handler))
        await asyncio.sleep(0)
        second = await ask(handler)
        free.set()
        return await first, second, await ask(handler)

    first, second, third = run(crowd())
    assert (first.content, first.status) == (b"True", 200)
    assert second.status == 503
    assert b"busy" in second.content
    assert third.status == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/api/v1/health/live"])
def test_probe_is_answered_while_every_thread_hangs(serve, path):
    free = threading.Event()

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("live" if "health" in request.path else str(free.wait(60)))

    handler = serve(view)

    async def hang() -> bytes:
        hanging = asyncio.create_task(ask(handler))
        await asyncio.sleep(0)
        probe = await ask(handler, path=path)
        free.set()
        await hanging
        return probe.content

    assert run(hang()) == b"live"


def test_what_waited_too_long_is_refused_and_never_begun(serve):
    free, begun = threading.Event(), []

    def view(request: HttpRequest) -> HttpResponse:
        begun.append(request.path)
        return HttpResponse(str(free.wait(60)))

    handler = serve(view)
    handler.patience_seconds = 1.0

    async def wait() -> list[int]:
        answers = await asyncio.gather(ask(handler, path="/one"), ask(handler, path="/two"))
        free.set()
        return [answer.status for answer in answers]

    assert run(wait()) == [503, 503]
    handler.requests.shutdown()
    assert begun == ["/one"]


class Wire:
    """A transport that remembers each call to the system."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.sent.append(data)

    def close(self) -> None:
        self.is_closed = True


def test_headers_and_body_of_an_answer_are_sent_in_one_call() -> None:
    async def answer(wire: Wire) -> None:
        transport = Joined(wire, asyncio.get_running_loop())
        transport.write(b"headers ")
        transport.write(b"body")
        await asyncio.sleep(0)

    wire = Wire()
    asyncio.run(answer(wire))
    assert wire.sent == [b"headers body"]


def test_what_nothing_follows_is_sent_at_once_and_in_order() -> None:
    async def stream(wire: Wire) -> None:
        transport = Joined(wire, asyncio.get_running_loop())
        for piece in (b"headers", b"one", b"two"):
            transport.write(piece)
            await asyncio.sleep(0)
        transport.write(b"three")
        transport.write(b"")
        transport.write(b"last")
        transport.close()

    wire = Wire()
    asyncio.run(stream(wire))
    assert wire.sent == [b"headers", b"one", b"two", b"three", b"last"]
    assert wire.is_closed


def test_connection_that_is_closed_has_sent_all() -> None:
    async def close(wire: Wire) -> None:
        transport = Joined(wire, asyncio.get_running_loop())
        transport.write(b"headers")
        transport.close()
        await asyncio.sleep(0)

    wire = Wire()
    asyncio.run(close(wire))
    assert wire.sent == [b"headers"]
