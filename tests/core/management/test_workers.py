"""`manage.py workers`: orders are carried out and shown, the fleet is listed."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from orchestrator.core import clock
from orchestrator.core.states import ExecutionStatus
from tests import commands
from tests.factories import NOW, make_execution, make_worker

pytestmark = pytest.mark.django_db

run, document, refused = commands.of("workers")
items = partial(commands.items, "workers")


def test_order_is_carried_out_and_shown_with_its_reason() -> None:
    worker = make_worker("w1", now=clock.now(), labels={"zone": "b"})
    told = run("cordon", "w1", "--reason", "new disk")
    assert "cordoned: new disk" in told
    assert "zone=b" in told
    drained = document("drain", str(worker.pk))
    assert (drained["status"], drained["cordoned"]) == ("draining", True)
    assert document("uncordon", "w1")["cordoned"] is False
    events = items("events", "w1")
    assert [event["kind"] for event in events] == [
        "uncordoned",
        "draining",
        "cordoned",
        "cordoned",
    ]
    assert {event["actor"].partition(":")[0] for event in events} == {"cli"}
    assert "new disk" in run("events", "w1")


def test_drain_that_waits_in_vain_fails() -> None:
    make_worker("w1", now=clock.now())
    assert "still up after 0.01 s" in refused("drain", "w1", "--wait", "0.01")


def test_worker_that_is_up_is_not_retired() -> None:
    make_worker("w1", now=clock.now())
    assert "w1 is up: drain it, or stop it" in refused("retire", "w1")


def test_retired_workers_are_listed_only_when_asked_for() -> None:
    make_worker("w1", status="inactive", retired_at=NOW)
    assert items("list") == []
    assert "retired" in run("list", "--all")


def test_workers_are_listed_with_the_age_of_their_heartbeat_and_their_load() -> None:
    now = clock.now()
    fresh = make_worker("w1", now=now - timedelta(seconds=3))
    make_worker("w2", now=now - timedelta(seconds=600))
    make_worker("w3", status="inactive", heartbeat_at=None)
    make_execution(ExecutionStatus.RUNNING, worker=fresh)
    found = items("list")
    assert [(w["name"], w["heartbeat"], w["load"], w["eligible"]) for w in found] == [
        ("w1", "fresh", 1, True),
        ("w2", "stale", 0, False),
        ("w3", "never", 0, False),
    ]
    assert 3 <= found[0]["heartbeat_age_seconds"] < 60
    table = run("list")
    assert "10 min" in table


def test_no_worker_says_what_to_do() -> None:
    assert "manage.py worker --name" in run("list")
    assert items("list") == []
