"""Sessions that hold rows and never let go: nobody else has to wait for them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.relays import Wire
from tests.scenarios.installation import Installation, Service

pytestmark = pytest.mark.parametrize("backend", ["servers"], indirect=True)

IN_TIME = timedelta(seconds=10)
"""From a deadline to the end, whatever is held."""
PROMISED = timedelta(seconds=20)


def test_held_row_keeps_no_other_from_its_end(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    held, *others = submit_overdue(muster, 11)
    with session(muster) as psql:
        psql.execute("SELECT 1 FROM orchestrator_execution WHERE id = %s FOR UPDATE", [held])
        began = time.monotonic()
        muster.start_executor()
        rows = muster.wait_for_ends(others)
        measured("start of an executor to 10 ends beside a held row", time.monotonic() - began)
        assert {row.reason for row in rows} == {"deadline_passed"}
        assert muster.execution(held).status == "requested"
        psql.rollback()
    assert muster.wait_for_end(held).reason == "deadline_passed"
    muster.check_accounts()


@pytest.mark.slow
def test_executor_that_is_stopped_in_a_transaction_holds_nobody_up(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    other = start_standing_still(muster)
    swept = submit_overdue(muster, 10)
    with history_locked(muster):
        stopped = muster.start_executor("stopped")
        pid = wait_for_waiting_session(muster)
        stopped.pause_tree()
    wait_for_open_transaction(muster, pid)
    paused_at = time.monotonic()

    assert_another_goes_on(muster, other, swept)
    measured("executor stopped in a transaction to the end of all", time.monotonic() - paused_at)
    stopped.resume_tree()
    other.kill_tree()
    muster.wait_for_ends(submit_overdue(muster, 1))
    muster.wait_for(stopped.is_up, "it does not go on")
    muster.check_accounts()


@pytest.mark.slow
def test_executor_that_vanishes_in_a_transaction_holds_nobody_up(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    """Its session is open on both sides, and nothing comes any more. It was about to end what a
    dead worker ran, for which some of the promised time is over already."""
    muster: Installation = install(staleness_multiplier=50)
    url = muster.environment["DATABASE_URL"]
    other = start_standing_still(muster)
    with Wire.to(url) as relay:
        muster.start_executor("vanished", DATABASE_URL=relay.carrying(url))
        swept = start_on_a_worker_that_dies(muster, 2)
        with history_locked(muster):
            pid = wait_for_waiting_session(muster)
            relay.hush()
        wait_for_open_transaction(muster, pid)

        assert_another_goes_on(muster, other, swept)
        rows = muster.executions()
        late = max((rows[id].ended_at - rows[id].deadline_at).total_seconds() for id in swept)
        measured("executor vanished in a sweep: end after the deadline", late)
        assert late < PROMISED.seconds
    muster.check_accounts()


# --- what they do --------------------------------------------------------------------------------


def start_standing_still(muster: Installation) -> Service:
    """A second executor that is there at once when it is to go on, and holds nothing meanwhile."""
    other = muster.start_executor("other")
    muster.ready()

    def stands_still() -> bool:
        other.pause_tree()
        if nobody_is_busy(muster):
            return True
        other.resume_tree()
        return False

    muster.wait_for(stands_still, "it is always busy")
    return other


def nobody_is_busy(muster: Installation) -> bool:
    query = """
        SELECT NOT EXISTS (
            SELECT 1 FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
        )
    """
    with session(muster) as psql:
        return bool(psql.execute(query).fetchall()[0][0])


def start_on_a_worker_that_dies(muster: Installation, number: int) -> list[UUID]:
    """Executions that run into their deadline on a worker that is gone, and that nobody misses."""
    worker = muster.start_worker("dies", concurrency=number)
    muster.ready()
    labels = [f"dies {n}" for n in range(number)]
    notes = [{"label": label, "seconds": 600, "deadline_seconds": 4} for label in labels]
    ids = muster.submit_notes(*notes)
    for label in labels:
        muster.wait_for_start(label)
    worker.kill_tree()
    return ids


def assert_another_goes_on(muster: Installation, other: Service, swept: list[UUID]) -> None:
    """A second executor ends what is free in time, and what the first one holds as promised."""
    other.resume_tree()
    later = submit_overdue(muster, 10)
    muster.wait_for_ends(later, within_seconds=IN_TIME.seconds)
    assert_ended_in_time(muster, later)
    muster.wait_for_ends(swept, within_seconds=PROMISED.seconds)


def submit_overdue(muster: Installation, number: int) -> list[UUID]:
    """Executions that nothing runs, and whose deadline has passed when this returns."""
    news = [{"parameters": {}, "deadline_seconds": 0.5} for _ in range(number)]
    ids = muster.submit_many(news, "core.noop")
    with session(muster) as psql:
        query = "SELECT max(deadline_at) < clock_timestamp() FROM orchestrator_execution"
        muster.wait_for(lambda: psql.execute(query).fetchall()[0][0], "no deadline passes")
    return ids


@contextlib.contextmanager
def session(muster: Installation) -> Iterator[psycopg.Connection[Any]]:
    """An operator's psql."""
    with contextlib.closing(psycopg.connect(muster.environment["DATABASE_URL"])) as psql:
        yield psql


@contextlib.contextmanager
def history_locked(muster: Installation) -> Iterator[None]:
    """Inside, whoever has taken rows to end them comes as far as their history, and waits."""
    with session(muster) as psql:
        psql.execute("LOCK TABLE orchestrator_executionevent IN SHARE MODE")
        yield
        psql.rollback()


def wait_for_waiting_session(muster: Installation) -> int:
    """The session that has taken rows and waits to write their history."""
    query = """
        SELECT pid FROM pg_locks
        WHERE NOT granted AND relation = 'orchestrator_executionevent'::regclass
    """

    def look() -> int | None:
        with session(muster) as psql:
            rows = psql.execute(query).fetchall()
        return rows[0][0] if rows else None

    pid = muster.wait_for(look, "nobody is in a transaction")
    assert pid is not None
    return pid


def wait_for_open_transaction(muster: Installation, pid: int) -> None:
    def look() -> bool:
        with session(muster) as psql:
            row = psql.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid])
            return row.fetchall() == [("idle in transaction",)]

    muster.wait_for(look, "its transaction is not open")


def assert_ended_in_time(muster: Installation, ids: list[UUID]) -> None:
    rows = muster.executions()
    late = [rows[id].ended_at - rows[id].deadline_at for id in ids]
    assert max(late) < IN_TIME, late
