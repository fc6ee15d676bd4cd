"""Pauses of a worker's subscriptions, in its row."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import fleet
from orchestrator.core.models import Worker
from tests.factories import NOW, make_worker, seconds
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database")


def life(worker: Worker) -> dict[str, int]:
    return {"worker_id": worker.pk, "incarnation": worker.incarnation}


def paused(worker: Worker, after_seconds: float = 0) -> dict[str, float]:
    """What it pauses then, and for how many seconds from now on."""
    pauses = fleet.paused(reread(worker).queue_pauses, now=NOW + seconds(after_seconds))
    return {name: (until - NOW).total_seconds() for name, until in pauses.items()}


def test_pause_ends_by_itself() -> None:
    worker = make_worker()
    assert fleet.pause(**life(worker), seconds={"orders": 30}, now=NOW)
    assert paused(worker) == {"orders": 30}
    assert paused(worker, 29.9) == {"orders": 30}
    assert paused(worker, 30) == {}


def test_further_pause_prolongs_and_never_shortens() -> None:
    worker = make_worker()
    fleet.pause(**life(worker), seconds={"orders": 30, "mail": 5}, now=NOW)
    fleet.pause(**life(worker), seconds={"orders": 10, "mail": 40}, now=NOW + seconds(1))
    assert paused(worker) == {"orders": 30, "mail": 41}


def test_pause_that_is_over_leaves_the_row_with_the_next() -> None:
    worker = make_worker()
    fleet.pause(**life(worker), seconds={"orders": 30}, now=NOW)
    fleet.pause(**life(worker), seconds={"mail": 5}, now=NOW + seconds(31))
    assert list(reread(worker).queue_pauses) == ["mail"]


def test_other_life_is_left_alone() -> None:
    worker = make_worker()
    assert not fleet.pause(worker_id=worker.pk, incarnation=2, seconds={"orders": 30}, now=NOW)
    assert not fleet.set_pauses(worker_id=worker.pk, incarnation=2, seconds={"a": 30}, now=NOW)
    assert paused(worker) == {}


def test_new_life_has_no_pauses() -> None:
    worker = make_worker()
    fleet.pause(**life(worker), seconds={"orders": 30}, now=NOW)
    known: dict[str, Any] = {
        "capacity": 1,
        "runtimes": ["python"],
        "host": "h",
        "pid": 1,
        "version": "5",
    }
    fleet.register(worker_id=worker.pk, now=NOW, **known)
    assert paused(worker) == {}


def test_pause_has_a_longest_length() -> None:
    worker = make_worker()
    fleet.pause(**life(worker), seconds={"orders": 1e9}, now=NOW)
    assert paused(worker) == {"orders": 3600}


def test_pause_that_a_later_clock_has_written_is_none() -> None:
    worker = make_worker()
    fleet.pause(**life(worker), seconds={"orders": 30}, now=NOW + seconds(7200))
    assert paused(worker) == {}


def test_worker_can_end_its_pauses_early_and_correct_those_of_a_clock_that_was_set() -> None:
    worker = make_worker()
    fleet.pause(**life(worker), seconds={"orders": 30, "mail": 30}, now=NOW)
    assert not fleet.set_pauses(**life(worker), seconds={"orders": 29, "mail": 30}, now=NOW)
    assert paused(worker) == {"orders": 30, "mail": 30}, "within two seconds nothing is written"
    assert fleet.set_pauses(**life(worker), seconds={"orders": 12}, now=NOW)
    assert paused(worker) == {"orders": 12}
    assert fleet.set_pauses(**life(worker), seconds={}, now=NOW)
    assert reread(worker).queue_pauses == {}
