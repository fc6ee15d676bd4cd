"""The database is made read-only while everything runs, and takes writes again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.scenarios.installation import Installation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend", ["servers"], indirect=True),
]


def test_services_outlive_a_read_only_database(install: Callable[..., Any]) -> None:
    # a worker that cannot renew its heartbeat for a window has to go: this one has a minute
    muster: Installation = install(staleness_multiplier=120, worker_queue_ttl_ms=60_000)
    services = [muster.start_executor(), muster.start_worker("w1"), muster.start_beat()]
    api = f"{muster.serve()}/api/v1"
    token = muster.token("ci")
    muster.ready()
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:

        def submit() -> httpx.Response:
            return client.post(f"{api}/executions", json={"action_ref": "core.noop"})

        running = muster.submit_note("running", is_gated=True)
        muster.wait_for_start("running")
        with read_only(muster):
            muster.wait_for(lambda: submit().status_code == 503, "it is accepted")
            answer = submit()
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) > 0
            assert client.get(f"{api}/executions").status_code == 200
            muster.wait_for(lambda: _status(f"{api}/health/ready") == 503, "it is ready")
            # every service has met it
            for service in services[:2]:
                muster.wait_for(
                    lambda service=service: "read-only" in service.log(),  # type: ignore[misc]
                    f"{service.name} has not noticed",
                )
            muster.open_gate("running")
            muster.wait_for(lambda: muster.journal.ends("running"), "the action does not go on")
        muster.wait_for(lambda: submit().status_code == 201, "it is not accepted again")
    rows = muster.wait_for(lambda: _all_over(muster), "not everything ends as it should have")
    assert {row.status for row in rows} == {"completed"}
    assert muster.execution(running).attempt == 1
    assert all(service.process.poll() is None for service in services)
    assert muster.worker("w1").incarnation == 1
    muster.check_accounts()


@contextlib.contextmanager
def read_only(muster: Installation) -> Iterator[None]:
    """New sessions may not write, and all that were open have ended."""
    with contextlib.closing(
        psycopg.connect(muster.environment["DATABASE_URL"], autocommit=True)
    ) as psql:
        (name,) = psql.execute("SELECT current_database()").fetchall()[0]
        alter = sql.SQL("ALTER DATABASE {} {}")
        on = sql.SQL("SET default_transaction_read_only = on")
        psql.execute(alter.format(sql.Identifier(name), on))
        psql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        try:
            yield
        finally:
            off = sql.SQL("RESET default_transaction_read_only")
            psql.execute(alter.format(sql.Identifier(name), off))


def _status(url: str) -> int:
    try:
        return httpx.get(url).status_code
    except httpx.TransportError:
        return 0


def _all_over(muster: Installation) -> list[Any]:
    rows = list(muster.executions().values())
    return rows if all(row.ended_at is not None for row in rows) else []
