"""DBOS: durable workflows on PostgreSQL. `python -m benchmarks.rivals.dbos_` is its worker.

Workflows are put into a queue through its client, as from another process, and taken from it at
every poll. Polled each 50 ms instead of its default of a second, or the poll would be all that
is measured. It reaches nothing outside this machine: no key for its console, no tracing.
"""

from __future__ import annotations

import os
import threading

import psycopg
from dbos import (  # type: ignore[import-not-found, unused-ignore]
    DBOS,
    DBOSClient,
    DBOSConfig,
)

URL = os.environ["DATABASE_URL"]
QUEUE = "rival"
POLL_SECONDS = 0.05
THREADS = 8

_client: DBOSClient | None = None
_link: psycopg.Connection | None = None


@DBOS.workflow(name="noop")
def noop() -> None:
    pass


def work() -> None:
    """The worker, until it is ended."""
    config: DBOSConfig = {
        "name": "rival",
        "system_database_url": URL,
        "enable_otlp": False,
        "log_level": "WARNING",
        # at its default pool size for connections; threads as for the others
        "max_executor_threads": THREADS,
        "application_version": "1",
        "executor_id": "worker",
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL_SECONDS)
    print("ready.", flush=True)
    threading.Event().wait()


def prepare() -> None:
    """Nothing: the worker makes the tables when it is launched."""


def begin() -> None:
    if _client is None:
        _connect()
    _connected().execute("TRUNCATE dbos.workflow_status CASCADE")


def submit(*, count: int, bulk: bool) -> None:
    client = _client or _connect()
    for _ in range(count):
        client.enqueue({"queue_name": QUEUE, "workflow_name": "noop"})


def is_finished(*, count: int) -> bool:
    row = (
        _connected()
        .execute("SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'")
        .fetchone()
    )
    return bool(row and row[0] >= count)


def _connect() -> DBOSClient:
    global _client
    _client = DBOSClient(system_database_url=URL)
    return _client


def _connected() -> psycopg.Connection:
    global _link
    if _link is None:
        _link = psycopg.connect(URL, autocommit=True)
    return _link


if __name__ == "__main__":
    work()
