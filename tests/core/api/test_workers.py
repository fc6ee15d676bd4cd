"""Workers: who is there, and orders to them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.core import clock
from orchestrator.core.models import Worker
from orchestrator.core.state_machine import transition
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def test_workers_show_age_freshness_and_load(caller, request_one, worker):
    now = clock.now()
    Worker.objects.create(
        name="w2", status="active", runtimes=["shell"], heartbeat_at=now - timedelta(seconds=31)
    )
    Worker.objects.create(name="w3")
    transition(request_one(), "schedule", now=now, actor="t", worker=worker, start_by=now)
    fresh, stale, never = caller.get("/workers").json()["items"]
    assert (fresh["fresh"], fresh["eligible"], fresh["load"]) == (True, True, 1)
    assert 0 <= fresh["heartbeat_age_seconds"] < 10
    assert (stale["fresh"], stale["eligible"], stale["load"]) == (False, False, 0)
    assert 31 <= stale["heartbeat_age_seconds"] < 41
    assert (never["fresh"], never["heartbeat_age_seconds"]) == (False, None)
    shown = caller.get(f"/workers/{worker.pk}").json()
    assert {**shown, "heartbeat_age_seconds": 0} == {**fresh, "heartbeat_age_seconds": 0}


def test_orders_are_carried_out_and_kept_with_who_and_why(caller, worker):
    url = f"/workers/{worker.pk}"
    shown = caller.post(f"{url}/cordon", {"reason": "new disk"}).json()
    assert (shown["cordoned"], shown["cordon_reason"], shown["eligible"]) == (
        True,
        "new disk",
        False,
    )
    assert caller.post(f"{url}/drain", {"reason": "new disk"}).json()["status"] == "draining"
    assert caller.post(f"{url}/uncordon", {"reason": "done"}).json()["cordoned"] is False
    refused = caller.post(f"{url}/retire", {"reason": "gone"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:muster:problem:worker-is-up")
    told = [(e["kind"], e["reason"]) for e in caller.get(f"{url}/events").json()["items"]]
    assert told == [("uncordoned", "done"), ("draining", "new disk"), ("cordoned", "new disk")]
    actors = {event["actor"] for event in caller.get(f"{url}/events?limit=2").json()["items"]}
    assert actors == {"ci"}


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain", "retire"])
def test_order_without_reason_or_worker_is_refused(caller, worker, verb):
    assert caller.post(f"/workers/{worker.pk}/{verb}", {}).status_code == 422
    assert caller.post(f"/workers/{worker.pk}/{verb}", {"reason": ""}).status_code == 422
    assert caller.post(f"/workers/4711/{verb}", {"reason": "x"}).status_code == 404


def test_retired_workers_are_listed_only_when_asked_for(caller, worker):
    Worker.objects.create(name="w0", gone_at=NOW, retired_at=NOW, heartbeat_at=NOW)
    names = [w["name"] for w in caller.get("/workers").json()["items"]]
    assert names == [worker.name]
    every = [w["name"] for w in caller.get("/workers?retired=true").json()["items"]]
    assert every == ["w0", worker.name]
