"""An outage of the database in the log: few lines, no stacks."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from orchestrator.core import outages
from orchestrator.core.outages import Outage
from tests.logged import logged

FAILS, ANSWERS = "database fails, trying again", "database answers again"

log = outages.get_logger("tests.outages")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the monotonic clock, of a process that has seen no outage."""
    seconds = [1000.0]
    monkeypatch.setattr(outages, "outage", Outage())
    monkeypatch.setattr(outages, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


def fail(error: Exception, problem: str = "not done", **how: Any) -> None:
    try:
        raise error
    except Exception:
        log.exception(problem, **how)


def test_outage_is_one_line_however_much_fails(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(100):
        fail(OperationalError("connection\nrefused"), f"problem {number}", n=number)

    (line,) = logged(caplog, FAILS)
    assert (line["level"], line["error"]) == ("warning", "connection refused")
    assert (line["problem"], line["n"]) == ("problem 0", 0)
    assert len(caplog.records) == 1
    assert "Traceback" not in caplog.text


def test_outage_that_lasts_is_a_line_each_minute(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    for _ in range(121):
        fail(OperationalError("gone"))
        clock[0] += 1
    assert [line["failures"] for line in logged(caplog, FAILS)] == [1, 61, 121]


def test_outages_in_quick_succession_are_not_a_line_each(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    for _ in range(40):
        fail(OperationalError("the disk is full"))
        outages.outage.end()
        clock[0] += 0.5
    assert len(logged(caplog, FAILS)) == len(logged(caplog, ANSWERS)) == 2


def test_other_errors_keep_their_stack(caplog: pytest.LogCaptureFixture) -> None:
    fail(ValueError("of another kind"), n=3)
    (line,) = logged(caplog, "not done")
    assert (line["level"], line["n"]) == ("error", 3)
    assert "Traceback" in line["exception"]


def test_what_nothing_tries_again_is_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    fail(OperationalError("gone"))
    fail(OperationalError("gone"), "not signed off", is_final=True)
    (line,) = logged(caplog, "not signed off")
    assert (line["level"], line["error"]) == ("warning", "gone")


def test_statement_that_fails_alone_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    error = OperationalError("deadlock detected")
    error.__cause__ = psycopg.errors.DeadlockDetected()
    fail(error)
    assert [line["level"] for line in logged(caplog, "not done")] == ["warning"]
    assert not logged(caplog, FAILS)


@pytest.mark.django_db
def test_new_connection_ends_an_outage(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    caplog.set_level(logging.INFO)
    fail(OperationalError("gone"))
    clock[0] += 43
    outages.notice_end(connection)
    outages.notice_end(connection)
    (line,) = logged(caplog, ANSWERS)
    assert (line["level"], line["away_seconds"], line["failures"]) == ("info", 43.0, 1)


@pytest.mark.django_db
def test_connection_that_takes_no_writes_ends_no_outage(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(OperationalError("gone"))
    monkeypatch.setattr("orchestrator.core.database.takes_writes", lambda: False)
    outages.notice_end(connection)
    assert outages.outage.is_on
    assert not logged(caplog, ANSWERS)


@pytest.mark.parametrize("name", outages.FOREIGN)
def test_libraries_log_an_outage_as_we_do(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(name)
    for error in (OperationalError("gone"), ValueError("of another kind")):
        try:
            raise error
        except Exception:
            logger.exception("Database gave error: %r", error)
    (line,) = logged(caplog, FAILS)
    assert line["problem"] == f"{name} failed"
    kept = [bool(each.exc_info) for each in caplog.records if each.name == name]
    # a line that names a task stays, without its stack
    assert kept == ([False, True] if name == outages.OF_TASKS else [True])


@pytest.mark.parametrize("name", outages.FOREIGN)
def test_statement_of_a_library_that_fails_alone_is_no_outage(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = OperationalError("deadlock detected")
    error.__cause__ = psycopg.errors.DeadlockDetected()
    try:
        raise error
    except OperationalError:
        logging.getLogger(name).exception("Task %s raised", "orders.count")
    assert not logged(caplog, FAILS)
    (kept,) = [record for record in caplog.records if record.name == name]
    assert (kept.getMessage(), kept.exc_info) == ("Task orders.count raised", None)
