"""Times of a database whose clock was stepped are read as the times at which it happened."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.evidence import ClockStep, Database

NOW = time.time()
FORWARD, BACK = NOW - 100, NOW - 50


@pytest.fixture
def database(tmp_path: Any) -> Database:
    """Ten minutes forward after event 10, and back again after event 20."""
    muster: Any = SimpleNamespace(environment={}, directory=tmp_path)
    database = Database(muster)
    database.clock_steps += [
        ClockStep(FORWARD, 600.0, {"event": 10, "record": 0}),
        ClockStep(BACK, 0.0, {"event": 20, "record": 0}),
    ]
    return database


@pytest.mark.parametrize(
    ("number", "told", "true"),
    [
        (5, FORWARD - 20, FORWARD - 20),
        (15, FORWARD + 20 + 600, FORWARD + 20),
        (25, BACK + 20, BACK + 20),
        # who asked the clock before a step and wrote after it
        (11, FORWARD - 0.1, FORWARD - 0.1),
        (21, BACK - 0.1 + 600, BACK - 0.1),
    ],
    ids=["before", "between", "after", "asked before the first", "asked before the second"],
)
def test_step_of_the_clock_is_taken_out(
    database: Database, number: int, told: float, true: float
) -> None:
    assert database._true_time(told, number, "event") == pytest.approx(true)


def test_offset_is_that_of_the_last_step(database: Database) -> None:
    assert database.offset_at(FORWARD - 1) == 0
    assert database.offset_at(FORWARD + 1) == 600
    assert database.offset_at(NOW) == 0
