"""Times of a database whose clock was stepped are those at which it happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tests import servers
from tests.chaos.evidence import DATED, ClockStep, Database, failed_tasks

NOW = 1_000_000.0
FORWARD, BACK = NOW - 100, NOW - 50


@pytest.fixture
def stepped(tmp_path: Any) -> Database:
    """Ten minutes forward, and back again."""
    muster: Any = SimpleNamespace(environment={}, directory=tmp_path)
    database = Database(muster)
    database.clock_steps += [ClockStep(FORWARD, 600.0), ClockStep(BACK, 0.0)]
    return database


def test_offset_is_that_of_the_last_step(stepped: Database) -> None:
    assert stepped.offset_at(FORWARD - 1) == 0
    assert stepped.offset_at(FORWARD + 1) == 600
    assert stepped.offset_at(NOW) == 0


@pytest.mark.parametrize(
    ("asked", "shown"),
    [(FORWARD - 0.2, FORWARD - 0.2), (FORWARD + 0.1, FORWARD + 600.1)],
    ids=["before", "after"],
)
def test_time_of_an_event_is_when_its_writer_asked_although_the_clock_was_set_since(
    stepped: Database, asked: float, shown: float
) -> None:
    row = {
        "execution_id": "0" * 32, "event": "wait", "from_status": "requested",
        "to_status": "scheduling", "attempt": 0, "actor": "executor", "reason": None,
        "at": datetime.fromtimestamp(shown, UTC),
    }  # fmt: skip
    assert stepped._event(row, FORWARD + 0.3).date == pytest.approx(asked)


def test_failed_tasks_are_read_from_the_logs_of_executors(tmp_path: Any) -> None:
    (tmp_path / "executor2.7.log").write_text(
        "2026-01-02T03:04:05.500000Z [error] Task muster.check_timeouts[5b-1] raised unexpected: "
        "OperationalError('the connection is closed') [celery.app.trace]\n"
        "Traceback (most recent call last):\n"
        "2026-01-02T03:04:06.000000Z [info] Task muster.drain_dead_letters[5b-2] succeeded\n"
    )

    (failed,) = failed_tasks(tmp_path)

    assert (failed.service, failed.task) == ("executor2", "muster.check_timeouts")
    assert failed.at == datetime(2026, 1, 2, 3, 4, 5, 500_000, UTC).timestamp()
    assert failed.error.startswith("OperationalError")


@pytest.mark.parametrize(
    ("shown", "last_before"),
    [
        (FORWARD - 20, FORWARD - 20),
        (FORWARD + 20, FORWARD),
        # shown for a while after the step forward, and then not any more
        (BACK + 20, BACK + 20),
        (NOW + 500, NOW + 500),
    ],
    ids=["before", "skipped", "shown twice", "after"],
)
def test_deadline_is_over_when_the_clock_shows_it_for_good(
    stepped: Database, shown: float, last_before: float
) -> None:
    assert stepped.last_before(shown) == pytest.approx(last_before)


@pytest.fixture(scope="module")
def url_of_stepped() -> Iterator[str]:
    with servers.PostgresServer(has_own_clock=True) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for table in DATED:
                connection.execute(f"CREATE TABLE {table} (id int, at timestamptz DEFAULT now())")
        server.step_clock(600.0)
        yield server.url


def test_rows_say_when_they_were_written_whatever_the_clock_shows(
    url_of_stepped: str, tmp_path: Any
) -> None:
    muster: Any = SimpleNamespace(environment={"DATABASE_URL": url_of_stepped}, directory=tmp_path)
    database = Database(muster)
    database.keep_true_times()
    with psycopg.connect(url_of_stepped, autocommit=True) as connection:
        for table in DATED:
            connection.execute(f"INSERT INTO {table} VALUES (1)")  # noqa: S608 - our own names
            [row] = database.select(f"SELECT * FROM {table}")  # noqa: S608 - our own names
            assert row["at"].timestamp() == pytest.approx(time.time() + 600, abs=5)
            assert database._written_at(row, "at") == pytest.approx(time.time(), abs=2)
