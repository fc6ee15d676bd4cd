"""Procrastinate: a PostgreSQL-based queue whose rows keep track, as Muster's do.

`python -m benchmarks.rivals.procrastinate_` is its worker, of concurrency 8 and with no line
logged for each. The task is asynchronous, which its guide recommends over a synchronous one (no
thread each). Rows are kept (`delete_jobs` = never, its default): that is tracking.
"""

from __future__ import annotations

import os

import procrastinate  # type: ignore[import-not-found, unused-ignore]
import psycopg

URL = os.environ["DATABASE_URL"]
BULK = 1_000
"""As many as Muster is given at once."""

IS_WORKER = __name__ == "__main__"

app = procrastinate.App(
    # a worker needs the asynchronous connector, with room for 8 at once and for listening; to a
    # submitter without an event loop the guide gives the synchronous one
    connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=4, max_size=12)
    if IS_WORKER
    else procrastinate.SyncPsycopgConnector(conninfo=URL),
    worker_defaults={"concurrency": 8, "listen_notify": True, "delete_jobs": "never"},
)

_link: psycopg.Connection | None = None


@app.task(name="noop")
async def noop() -> None:
    pass


def prepare() -> None:
    app.open()
    app.schema_manager.apply_schema()


def begin() -> None:
    app.open()
    _connected().execute("TRUNCATE procrastinate_jobs, procrastinate_events CASCADE")


def submit(*, count: int, bulk: bool) -> None:
    if not bulk:
        for _ in range(count):
            noop.defer()
        return
    for first in range(0, count, BULK):
        noop.batch_defer(*[{} for _ in range(min(BULK, count - first))])


def is_finished(*, count: int) -> bool:
    row = (
        _connected()
        .execute(
            "SELECT NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
        )
        .fetchone()
    )
    return bool(row and row[0])


def check(*, count: int) -> None:
    row = (
        _connected()
        .execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
        .fetchone()
    )
    if not row or row[0] != count:
        raise RuntimeError(f"expected {count} succeeded, found {row}")


def _connected() -> psycopg.Connection:
    global _link
    if _link is None:
        _link = psycopg.connect(URL, autocommit=True)
    return _link


if IS_WORKER:
    print("ready.", flush=True)
    app.run_worker()
