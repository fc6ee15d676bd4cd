"""Documentation, probes, and servers that are away."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from django.templatetags.static import static
from django_celery_beat.models import PeriodicTask

from orchestrator.core import brokers, clock, reachability, relay
from orchestrator.core.api import health
from orchestrator.core.models import Execution, Service, Tick
from tests.core.api.client import BASE
from tests.factories import seconds

pytestmark = pytest.mark.django_db


# --- documentation and health ---------------------------------------------------------------------


def test_docs_need_nothing_from_another_host(caller):
    client = caller.client
    page = client.get(f"{BASE}/docs")
    assert page.status_code == 200
    assert b"http://" not in page.content
    assert b"https://" not in page.content
    assert static("ninja/").encode() in page.content
    script = client.get(static("ninja/swagger-ui-bundle.js"))
    assert script.status_code == 200
    script.close()


def test_index_leads_to_the_docs(client):
    assert client.get(f"{BASE}/")["Location"] == f"{BASE}/docs"


@pytest.mark.parametrize("name", ["live", "ready"])
def test_probes_answer_where_they_are_looked_for(client, name):
    answers = [client.get(f"{root}/health/{name}") for root in ("", BASE)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert client.post(f"/health/{name}").status_code == 405


def test_live_asks_no_server(client, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert client.get(f"{BASE}/health/live").json() == {"status": "live"}


def test_host_that_is_not_ours_is_a_problem(client):
    response = client.get(f"{BASE}/workers", headers={"host": "evil.example"})
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    page = client.get("/admin/", headers={"host": "evil.example"})
    assert page["Content-Type"].startswith("text/html")


# --- servers that are away ------------------------------------------------------------------------


@pytest.fixture(params=["closed", "silent"])
def broker_away(request, settings, monkeypatch) -> Iterator[None]:
    """A broker that refuses connections, and one that takes them and never says a word."""
    settings.MUSTER = dataclasses.replace(settings.MUSTER, publish_timeout_seconds=1)
    brokers.errors.cache_clear()
    monkeypatch.setattr(relay, "_relay", None)
    monkeypatch.setattr(reachability, "broker", reachability.Probe(reachability._broker_answers))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if request.param == "closed":
            server.close()
        settings.BROKER_URL = f"amqp://guest:guest@127.0.0.1:{port}//"
        yield
        assert relay.flush(20)  # before the port is another's
    brokers.errors.cache_clear()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("database")  # one that is not emptied: a history cannot be
def test_request_is_accepted_at_once_without_a_broker(broker_away, caller, action):
    took_seconds = []
    for _ in range(3):
        begun = time.monotonic()
        response = caller.post("/executions", {"action_ref": "core.echo"})
        assert response.status_code == 201
        took_seconds.append(time.monotonic() - begun)
    assert min(took_seconds) < 0.9  # waiting for the silent one takes longer than that
    assert Execution.objects.filter(status="requested").count() == 3


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("database")  # one that is not emptied: a history cannot be
def test_cancel_answers_at_once_without_a_broker(broker_away, caller, request_one):
    took_seconds = []
    for _ in range(3):
        execution = request_one()
        begun = time.monotonic()
        assert caller.post(f"/executions/{execution.pk}/cancel").status_code == 202
        took_seconds.append(time.monotonic() - begun)
    assert min(took_seconds) < 0.9


def test_ready_says_that_the_broker_is_away_and_is_ready_all_the_same(broker_away, client):
    begun = time.monotonic()
    response = client.get(f"{BASE}/health/ready")
    assert (response.status_code, response.json()["broker"]) == (200, "unreachable")
    assert time.monotonic() - begun < reachability.PATIENCE_SECONDS + 5


def test_ready_warns_that_no_executor_works_and_is_ready_all_the_same(client, monkeypatch):
    Tick.objects.create(name="muster.check_timeouts", ran_at=clock.now() - seconds(47))
    PeriodicTask.objects.update(last_run_at=clock.now() - seconds(360))
    Service.objects.create(
        kind="gate", name="doors", host="node-1", pid=7, started_at=clock.now(),
        seen_at=clock.now(), trouble="muster-gates has failed for 34 s",
    )  # fmt: skip
    missing = health.services.question()
    monkeypatch.setattr(health, "services", reachability.Probe(lambda: missing))
    monkeypatch.setattr(reachability, "warnings", reachability.Probe(lambda: ["gate orders: full"]))
    response = client.get(f"{BASE}/health/ready")
    assert response.status_code == 200
    executor, beat, doors, gate = response.json()["warnings"]
    assert executor.startswith("No executor has worked for 4")
    assert beat == "Beat has noted nothing for 6 min"
    assert doors == "gate doors on node-1 does not get on"
    assert gate == "gate orders: full"


@pytest.fixture(params=["says no", "says nothing"])
def database_answers(request) -> Iterator[Callable[[], bool]]:
    over = threading.Event()
    yield over.is_set if request.param == "says no" else partial(over.wait, 20)
    over.set()


def test_not_ready_without_a_database_that_answers(client, monkeypatch, database_answers):
    monkeypatch.setattr(reachability, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(reachability, "database_writes", reachability.Probe(database_answers))
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: True))
    begun = time.monotonic()
    response = client.get(f"{BASE}/health/ready")
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert response["Content-Type"] == "application/problem+json"
    assert time.monotonic() - begun < 10


def test_servers_are_asked_once_however_many_ask():
    questions = iter([True])
    probe = reachability.Probe(lambda: next(questions))
    assert all(probe.ask().result(1) for _ in range(20))
