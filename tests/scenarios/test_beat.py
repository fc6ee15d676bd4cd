"""With beat its ticks do the maintenance; without it the executor's watchdog does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from signal import SIGTERM
from typing import Any

import psycopg
import pytest

from orchestrator.core import maintenance
from tests.scenarios.installation import Backend, Installation, Service

MISSING = "beat's tick is missing"
OFTEN = {
    name
    for name, each in maintenance.functions().items()
    if each.interval == "maintenance_interval_seconds"
}


@pytest.mark.slow
def test_watchdog_is_silent_while_beat_ticks_and_takes_over_when_it_dies(
    install: Callable[..., Any],
) -> None:
    # its tick may be late by half of this, on a machine that is busy
    muster: Installation = install(maintenance_interval_seconds=6)
    executor = muster.start_executor()
    beat = muster.start_beat("DEBUG")
    muster.ready()

    def ran() -> dict[str, Any]:
        ticks: dict[str, Any] = muster.client.call("ticks")
        return {name: at for name, at in ticks.items() if name in OFTEN}

    def all_ran_after(earlier: dict[str, Any]) -> bool:
        now = ran()
        return all(now[name] > at for name, at in earlier.items())

    muster.wait_for(lambda: "Sending due task" in beat.log(), "beat does not tick")
    muster.wait_for(lambda: len(ran()) == len(OFTEN), "nothing ran")
    # the first of all, when there was no tick yet, may be the watchdog's
    muster.wait_for(partial(all_ran_after, ran()), "nothing ran again")
    told_before = executor.log().count(MISSING)
    for _ in range(2):
        muster.wait_for(partial(all_ran_after, ran()), "beat's ticks stopped")
    assert executor.log().count(MISSING) == told_before

    beat.kill_tree()
    never = muster.submit_note("never", action="note_patiently", deadline_seconds=2)
    row = muster.wait_for_end(never)

    assert (row.status, row.reason) == ("failed", "deadline_passed")
    muster.wait_for(
        lambda: executor.log().count(MISSING) > told_before, "the watchdog did not take over"
    )
    muster.check_accounts()


LOCK = "LOCK TABLE django_celery_beat_periodictasks IN ACCESS EXCLUSIVE MODE"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.fixture
def beat_and_database(servers_backend: Backend) -> Iterator[tuple[Service, str]]:
    """A beat at work, and the URL of its database for who may do everything."""
    muster = Installation(servers_backend)
    try:
        beat, database_url = muster.start_beat(), muster.environment["DATABASE_URL"]
        muster.wait_for(lambda: presences(database_url) == [False], "it is not up")
        yield beat, database_url
    finally:
        muster.close()


@contextlib.contextmanager
def in_a_statement(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Beat waits in the middle of a statement, until the lock is given back."""
    with (
        psycopg.connect(database_url) as holder,
        psycopg.connect(database_url, autocommit=True) as watcher,
    ):
        holder.execute(LOCK)
        until_waiting(watcher)
        yield holder
        holder.rollback()


def until_waiting(watcher: psycopg.Connection[Any]) -> None:
    for _ in range(1_000):
        row = watcher.execute(WAITING).fetchone()
        if row is not None and row[0]:
            return
        threading.Event().wait(0.01)
    raise AssertionError("beat does not ask")


def presences(database_url: str) -> list[bool]:
    """Of each life of beat, whether it has ended in good order."""
    with psycopg.connect(database_url) as connection:
        lives = "SELECT stopped_at IS NOT NULL FROM orchestrator_service WHERE kind = 'beat'"
        return [row[0] for row in connection.execute(lives)]


def test_beat_that_is_stopped_in_a_statement_ends_in_good_order(
    beat_and_database: tuple[Service, str],
) -> None:
    beat, database_url = beat_and_database
    with in_a_statement(database_url):
        beat.signal(SIGTERM)
        threading.Event().wait(0.3)  # it hears the signal while it waits
        assert beat.process.poll() is None
        assert presences(database_url) == [False]
    assert beat.exit_status(within_seconds=20) == 0
    assert presences(database_url) == [True]
    assert "Traceback" not in beat.log()


def test_a_second_signal_ends_beat_in_the_middle_of_a_statement(
    beat_and_database: tuple[Service, str],
) -> None:
    beat, database_url = beat_and_database
    with in_a_statement(database_url):
        beat.signal(SIGTERM)
        threading.Event().wait(0.3)
        beat.signal(SIGTERM)
        assert beat.exit_status(within_seconds=20) == 0
        assert presences(database_url) == [True]
    assert "Traceback" not in beat.log()


def test_beat_that_waits_for_its_database_ends_at_once(servers_backend: Backend) -> None:
    muster = Installation(servers_backend)
    try:
        away = "postgresql://nobody@127.0.0.1:1/nothing"
        beat = muster.start(
            "beat", "-m", "celery", "-A", "settings", "beat", "--pidfile=", DATABASE_URL=away
        )
        muster.wait_for(lambda: "not reachable" in beat.log(), "it does not wait")
        beat.signal(SIGTERM)
        assert beat.exit_status(within_seconds=20) == 0
    finally:
        muster.close()


def test_beat_that_waits_for_the_broker_ends_at_once(servers_backend: Backend) -> None:
    muster = Installation(servers_backend)
    try:
        celery = ("-m", "celery", "-A", "settings", "beat", "--pidfile=")
        beat = muster.start("beat", *celery, BROKER_URL="amqp://guest@127.0.0.1:1//")
        muster.wait_for(lambda: "Connection error" in beat.log(), "it does not wait")
        beat.signal(SIGTERM)
        assert beat.exit_status(within_seconds=20) == 0
        assert presences(muster.environment["DATABASE_URL"]) == [True]
    finally:
        muster.close()
