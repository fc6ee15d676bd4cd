"""Statements that are counted in the log of a database's server."""

from __future__ import annotations

import os

import psycopg
import pytest

from benchmarks import statements
from tests import servers

LOG = b"""\
2026-03-01 12:00:00.001 UTC [11] LOG:  statement: BEGIN
2026-03-01 12:00:00.002 UTC [11] LOG:  execute <unnamed>: SELECT 1
\tFROM somewhere
2026-03-01 12:00:00.003 UTC [11] LOG:  statement: COMMIT
2026-03-01 12:00:00.004 UTC [12] LOG:  execute _pg3_0: SELECT 2
2026-03-01 12:00:00.005 UTC [12] DETAIL:  parameters: $1 = '7'
2026-03-01 12:00:00.006 UTC [13] LOG:  execute _pg3_1: UPDATE "orchestrator_service" SET x = 1
2026-03-01 12:00:00.007 UTC [14] ERROR:  no such table
"""


def test_statements_are_counted_by_connection_and_boundaries_are_none() -> None:
    assert statements.read(LOG) == {11: 1, 12: 1, 13: 1}
    assert statements.read(LOG, but={12}) == {11: 1, 13: 1}


def test_connections_that_renew_a_presence_are_known() -> None:
    assert statements.renewers(LOG) == {13}


def test_only_statements_after_the_mark_count(request: pytest.FixtureRequest) -> None:
    if "TEST_DATABASE_URL" in os.environ:
        pytest.skip("the log of somebody else's server")
    server: servers.PostgresServer = request.getfixturevalue("shared_postgres")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE counted")
    url = server.url.rpartition("/")[0] + "/counted"
    log = statements.Log(server.url, url, server.directory / "server.log")
    log.begin()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT 1")
        log.mark()
        assert log.counts().total() == 0
        connection.execute("SELECT %s", [2])
        pid = connection.info.backend_pid
        assert log.counts() == {pid: 1}
        assert log.counts(but={pid}).total() == 0
        assert pid in log.connections()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE counted WITH (FORCE)")
