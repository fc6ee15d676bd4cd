"""Many tabs of the console: one connection reads for all of them, and for nobody none does."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from orchestrator.console.live.hub import LINGER_SECONDS
from tests.scenarios.installation import Backend, Installation

TABS = 50
TOPICS = "execution,task,worker,presence,dlq,clock"
USER, PASSWORD = "ada", "walk the dog"
WATCHED_SECONDS = 3.0
"""A pulse beats three times."""
OPENED_SECONDS = 20.0

BUSY = """
    SELECT pid, query_start FROM pg_stat_activity
    WHERE datname = %s AND usename = %s AND query NOT LIKE %s
"""
RENEWALS = 'UPDATE "orchestrator_service"%'
"""What each service says of itself, whoever looks."""


@pytest.fixture(params=["servers"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Only a server knows its connections."""
    chosen: Backend = request.getfixturevalue(f"{request.param}_backend")
    return chosen


@pytest.fixture
def muster(backend: Backend) -> Iterator[Installation]:
    """One with an API process alone: no connection is an executor's."""
    installation = Installation(backend)
    yield installation
    installation.close()


@pytest.mark.slow
def test_one_connection_reads_for_all_tabs_and_none_when_they_have_left(
    muster: Installation,
) -> None:
    url = muster.serve()
    muster.ready()
    cookie = _log_in(muster, url)
    assert _reading(muster) == set()
    with _tabs(url, cookie, TABS) as tabs:
        assert len({tab.getpeername() for tab in tabs}) == 1
        reading = _reading(muster)
        assert len(reading) == 1, "a pulse, and nobody else"
        muster.submit("core.noop")
        for tab in tabs:
            assert _heard(tab)
    muster.wait_for(
        lambda: not reading & _connections(muster).keys(),
        "a connection is kept for nobody",
        within_seconds=LINGER_SECONDS + 20,
    )
    assert _reading(muster) == set()


def _log_in(muster: Installation, url: str) -> str:
    """The cookie of a new administrator's session."""
    muster.client.call("make_administrator", name=USER, password=PASSWORD)
    with httpx.Client(base_url=url, timeout=60) as staff:
        staff.get("/admin/login/")
        token = staff.cookies["csrftoken"]
        form = {"username": USER, "password": PASSWORD, "csrfmiddlewaretoken": token}
        assert staff.post("/admin/login/", data=form).status_code == 302
        return f"sessionid={staff.cookies['sessionid']}"


@contextmanager
def _tabs(url: str, cookie: str, number: int) -> Iterator[list[socket.socket]]:
    """Plain sockets on the stream, each of which has had its first line."""
    place = urlsplit(url)
    request = f"GET /console/live?topics={TOPICS} HTTP/1.1\r\nHost: {place.netloc}\r\n"
    with ExitStack() as exits:
        opened = []
        for _ in range(number):
            tab = socket.create_connection((place.hostname, place.port), OPENED_SECONDS)
            exits.callback(tab.close)
            tab.sendall(f"{request}Cookie: {cookie}\r\n\r\n".encode())
            opened.append(tab)
        for tab in opened:
            assert _reads(tab, b": here")
        yield opened


def _reads(tab: socket.socket, wanted: bytes) -> bool:
    text = b""
    while wanted not in text:
        more = tab.recv(4_096)
        if not more:
            return False
        text += more
    return True


def _heard(tab: socket.socket) -> bool:
    return _reads(tab, b"event: moved\ndata: {")


def _reading(muster: Installation) -> set[int]:
    """The connections of the API process that ask something within a few beats, but for the one
    that renews its presence."""
    before = _connections(muster)
    time.sleep(WATCHED_SECONDS)
    after = _connections(muster)
    return {pid for pid, at in after.items() if pid not in before or before[pid] != at}


def _connections(muster: Installation) -> dict[int, object]:
    """When each connection of the API process began its latest query."""
    postgres = muster.backend.postgres
    assert postgres is not None
    url = urlsplit(muster.login("api")["DATABASE_URL"])
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        rows = connection.execute(BUSY, [url.path.lstrip("/"), url.username, RENEWALS])
        return dict(rows.fetchall())
