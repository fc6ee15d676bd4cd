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

app = procrastinate.App(
    # room for 8 at once, and for listening
    connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=4, max_size=12),
    worker_defaults={"concurrency": 8, "listen_notify": True, "delete_jobs": "never"},
)

_submitter: procrastinate.App | None = None
_link: psycopg.Connection | None = None


@app.task(name="noop")
async def noop() -> None:
    pass


def prepare() -> None:
    with _opened() as submitter:
        submitter.schema_manager.apply_schema()


def begin() -> None:
    _connected().execute("TRUNCATE procrastinate_jobs, procrastinate_events CASCADE")


def submit(*, count: int, bulk: bool) -> None:
    task = _kept_open().tasks["noop"]
    if not bulk:
        for _ in range(count):
            task.defer()
        return
    for first in range(0, count, BULK):
        task.batch_defer(*[{} for _ in range(min(BULK, count - first))])


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


def _opened() -> procrastinate.App:
    """A synchronous submitter opens a synchronous connector, as the guide says."""
    submitter = app.with_connector(procrastinate.SyncPsycopgConnector(conninfo=URL))
    submitter.open()
    return submitter


def _kept_open() -> procrastinate.App:
    global _submitter
    if _submitter is None:
        _submitter = _opened()
    return _submitter


def _connected() -> psycopg.Connection:
    global _link
    if _link is None:
        _link = psycopg.connect(URL, autocommit=True)
    return _link


if __name__ == "__main__":
    print("ready.", flush=True)
    app.run_worker()
