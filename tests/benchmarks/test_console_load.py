"""Tabs of the console as a benchmark opens them, on a server that is not the console."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from benchmarks import console_load
from benchmarks.remote import BenchmarkError
from tests.waiting import wait_until

ID = "0197aaaa-0000-7000-8000-000000000001"
ROW = f'<tr id="x-{ID}">'
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: here\n\n"
MOVED = b'event: moved\ndata: {"execution": 1}\n\n'


class Server:
    """Answers streams, and pages of one row; refuses everything else."""

    def __init__(self) -> None:
        self.streams: list[asyncio.StreamWriter] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.server = asyncio.run_coroutine_threadsafe(starting, self.loop).result(10)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /live?topics=execution%2Cclock "):
            self.streams.append(writer)  # first: who has read it may let things move
            writer.write(STREAM)
            return
        assert b"X-Live: 1" in head or head.startswith(b"GET /nothing")
        status = b"404 Not Found" if head.startswith(b"GET /nothing") else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n" + ROW.encode())
        writer.close()

    def move(self) -> None:
        for writer in self.streams:
            self.loop.call_soon_threadsafe(writer.write, MOVED)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)

    async def _close(self) -> None:
        for writer in self.streams:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def end(self) -> None:
        self.close()
        self.loop.call_soon_threadsafe(self.server.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    console_load.begin(url=server.url, cookie="sessionid=x", live="/live")
    yield server
    console_load.end()
    server.end()


def test_a_tab_listens_and_asks_for_nothing(server: Server) -> None:
    console_load.open_tabs(number=3, topics="execution,clock")
    server.move()
    wait_until(lambda: console_load.counted()["moved"] == 3)
    assert console_load.counted()["answers"] == 0


def test_a_window_asks_for_its_page_and_notes_when_a_row_was_first_there(server: Server) -> None:
    console_load.open_tabs(number=1, topics="execution,clock", page="/list")
    server.move()
    wait_until(lambda: ID in console_load.seen())
    first = dict(console_load.seen())
    server.move()
    wait_until(lambda: console_load.counted()["answers"] == 2)
    assert console_load.seen() == first


def test_what_is_no_stream_is_no_tab(server: Server) -> None:
    console_load.begin(url=server.url, cookie="", live="/nothing")
    with pytest.raises(BenchmarkError, match="no stream"):
        console_load.open_tabs(number=1, topics="clock")


def test_streams_that_the_server_closes_are_counted(server: Server) -> None:
    console_load.open_tabs(number=2, topics="execution,clock")
    server.close()
    wait_until(lambda: console_load.counted()["ended"] == 2)
