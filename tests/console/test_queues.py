"""Queues: lanes, gates and the broker's queues; pausing, resuming and retiring a lane."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.console import broker, lane_orders
from orchestrator.console.broker import Sampled, Watched
from orchestrator.console.pages.queues import BrokerRow
from orchestrator.core import clock, queue_depths, topology
from orchestrator.core.models import Action, Worker
from orchestrator.core.queue_depths import Depth
from orchestrator.queues.gates import depths as gate_depths
from orchestrator.queues.models import Gate, QueueEvent, WorkQueue
from tests.console.costs import looking_alone
from tests.factories import make_dlq_entry, make_execution, make_worker
from tests.principals import given, staff

Person = Callable[[str], Client]
Answer = Callable[[dict[str, Depth] | None], None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Have the broker answer this; None for no answer."""
    found: dict[str, Depth] = {}
    is_up = [True]

    def ask(names: object) -> dict[str, Depth]:
        if not is_up[0]:
            raise OSError("no broker")
        return found

    monkeypatch.setattr(queue_depths, "ask", ask)
    sampler = broker.Sampler()
    monkeypatch.setattr(broker, "sampler", sampler)
    monkeypatch.setattr(broker, "own", _eager(sampler.take))

    def answer(depths: dict[str, Depth] | None) -> None:
        is_up[0] = depths is not None
        found.clear()
        found.update(depths or {})

    answer({})
    return answer


def _eager(question: Callable[[], object]) -> Watched[object]:
    """One that is asked each time."""
    watched = Watched(question)
    watched._probe.fresh_seconds = 0
    return watched


@pytest.fixture
def bills() -> WorkQueue:
    now = clock.now()
    return WorkQueue.objects.create(
        name="bills", max_running=5, description="What is owed.", created_at=now, updated_at=now
    )


def page(client: Client, name: str = "queues", *args: str, status: int = 200) -> str:
    answer = client.get(reverse(f"console:{name}", args=args))
    assert answer.status_code == status, answer.content[:300]
    return answer.content.decode()


def row(html: str, id: str) -> list[str]:
    """The texts of the cells of a row."""
    found = re.search(rf'<tr id="{re.escape(id)}">(.*?)</tr>', html, re.DOTALL)
    assert found, id
    cells = re.findall(r"<td[^>]*>(.*?)</td>", found[1], re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in cells]


# --- lanes ----------------------------------------------------------------------------------------


def test_each_lane_says_what_waits_runs_and_flows_the_default_one_first(
    admin_client: Client, answers: Answer, bills: WorkQueue, action: Action
) -> None:
    now = clock.now()
    served = make_worker("serves", now=now, queues={"bills": 2})
    make_execution("requested", action=action, now=now)
    for status in ("scheduling", "running"):
        make_execution(status, action=action, now=now, queue="bills", lane="input", worker=served,
                       created_at=now - timedelta(seconds=30))  # fmt: skip
    html = page(admin_client)
    assert html.index("lane-default") < html.index("lane-bills")
    default, lane = row(html, "lane-default"), row(html, "lane-bills")
    assert default[2:4] == ["1", "0"]
    assert lane[1:4] == ["open", "1", "1 of 5"]
    assert lane[4].startswith("30")
    assert lane[5] == "2 / 0"
    assert lane[6] == "serves (2 slots)"


def test_a_paused_lane_says_by_whom_and_why_and_one_without_workers_says_so(
    admin_client: Client, answers: Answer, bills: WorkQueue
) -> None:
    WorkQueue.objects.update(paused_at=clock.now(), pause_reason="shop is down", paused_by="ann")
    lane = row(page(admin_client), "lane-bills")
    assert lane[1] == "paused"
    assert lane[-1] == "paused by ann: shop is down; no worker serves it"


def test_a_retired_lane_is_not_listed_and_has_its_page(
    admin_client: Client, answers: Answer, bills: WorkQueue
) -> None:
    WorkQueue.objects.update(retired_at=clock.now(), accepts=False)
    assert "lane-bills" not in page(admin_client)
    html = page(admin_client, "queue", "bills")
    assert "retired" in html
    assert 'data-opens="pause"' not in html
    assert 'data-opens="retire"' not in html


def test_a_lane_shows_what_is_started_next_in_its_order(
    admin_client: Client, answers: Answer, bills: WorkQueue, action: Action
) -> None:
    now = clock.now()
    later = make_execution("requested", action=action, now=now, queue="bills", lane="input")
    first = make_execution(
        "requested", action=action, now=now, queue="bills", lane="input", priority=9
    )
    other = make_execution("requested", action=action, now=now)
    html = page(admin_client, "queue", "bills")
    assert html.index(str(first.pk)) < html.index(str(later.pk))
    assert str(other.pk) not in html


def test_who_may_see_no_executions_sees_no_ids_in_a_lane(
    answers: Answer, bills: WorkQueue, action: Action
) -> None:
    execution = make_execution(
        "requested", action=action, now=clock.now(), queue="bills", lane="input"
    )
    html = page(staff("ann", given("queues.read")), "queue", "bills")
    assert str(execution.pk) not in html


def test_a_lane_that_is_not_there_is_said_to_be_none_with_what_was_meant(
    admin_client: Client, answers: Answer, bills: WorkQueue
) -> None:
    assert "did you mean &#x27;bills&#x27;" in page(admin_client, "queue", "bils", status=404)


# --- queues of the broker -------------------------------------------------------------------------


def test_a_workers_queue_shows_rows_messages_ttl_and_why_they_differ(
    admin_client: Client, answers: Answer, worker: Worker
) -> None:
    now = clock.now()
    make_execution("scheduled", worker=worker, now=now)
    name = topology.worker_queue(worker.pk).name
    answers({name: Depth(1, 0)})
    html = page(admin_client)
    cells = row(html, f"q-{name}")
    assert cells[1:3] == ["1", "1"]
    assert cells[5].startswith("4 min") or cells[5].startswith("5 min")
    assert cells[6] == "0"
    assert "the worker is away" in cells[7]
    left = re.search(r'data-left="([\d.]+)"', html)
    assert left
    assert 280 < float(left[1]) <= 310


def test_a_queue_that_the_broker_does_not_have_is_said_to_be_missing(
    admin_client: Client, answers: Answer, worker: Worker
) -> None:
    cells = row(page(admin_client), f"q-{topology.worker_queue(worker.pk).name}")
    assert cells[2] == "missing"
    assert "makes it at its start" in cells[7]


def test_dead_letters_of_a_queue_are_linked(
    admin_client: Client, answers: Answer, worker: Worker
) -> None:
    name = topology.worker_queue(worker.pk).name
    make_dlq_entry(original_queue=name, now=clock.now())
    html = page(admin_client)
    assert "1 dead letter to look into" in row(html, f"q-{name}")[7]
    url = re.search(r'href="([^"]+)">1 dead letter', html)
    assert url
    listed = admin_client.get(url[1].replace("&amp;", "&")).content.decode()
    assert "1 investigation" in listed or "queue_ttl_expired" in listed


def test_a_broker_that_is_away_is_said_with_since_when_and_the_rows_stay(
    admin_client: Client, answers: Answer, worker: Worker
) -> None:
    make_execution("scheduled", worker=worker, now=clock.now())
    name = topology.worker_queue(worker.pk).name
    answers({name: Depth(7, 1)})
    page(admin_client)
    answers(None)
    html = page(admin_client)
    assert "The broker does not answer since" in html
    assert row(html, f"q-{name}")[1:3] == ["1", "7"]  # what it said before
    answers({name: Depth(2, 1)})
    html = page(admin_client)
    assert "does not answer" not in html
    assert row(html, f"q-{name}")[2] == "2"


def test_a_broker_that_hangs_holds_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    watched: Watched[str] = Watched(lambda: (goes_on.wait(20) and "answer") or None)
    monkeypatch.setattr(broker, "SILENT_SECONDS", 0)
    began = time.monotonic()
    seen = watched.look()
    assert time.monotonic() - began < 5
    assert seen.answer is None
    assert seen.silent_seconds is not None
    goes_on.set()


def test_the_queues_of_many_workers_are_asked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(names: Iterator[str]) -> dict[str, Depth]:
        asked[:] = list(names)
        return dict.fromkeys(asked, Depth(0, 1))

    monkeypatch.setattr(queue_depths, "ask", ask)
    monkeypatch.setattr(broker, "IN_TURN", 2)
    sampler = broker.Sampler(["a", "b", "c"])
    shared = [spec.name for spec in topology.shared_queues()]
    turns = []
    for _ in range(3):
        sampler.take()
        turns.append(asked[len(shared) :])
        assert asked[: len(shared)] == shared
    assert turns == [["a", "b"], ["c"], ["a", "b"]]
    assert {"a", "b", "c"} <= sampler.known.keys()


def test_the_age_of_an_old_answer_is_said(worker: Worker) -> None:
    spec, now = topology.worker_queue(worker.pk), clock.now()
    old = Sampled(Depth(1, 1), time.monotonic() - 60)
    assert BrokerRow(spec, now, None, old, worker).asked.startswith("as of 1 min")
    assert BrokerRow(spec, now, None, Sampled(None, time.monotonic()), worker).asked == ""


# --- gates ----------------------------------------------------------------------------------------


def test_a_gate_shows_its_queues_or_that_its_broker_does_not_answer(
    admin_client: Client, answers: Answer, bills: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    Gate.objects.create(queue=bills, input_queue="bills-in", output_queue="bills-out")
    found = [
        gate_depths.Depth("input", "bills-in", 12, 1),
        gate_depths.Depth("output", "bills-out"),
    ]
    said: list[object] = [found]
    monkeypatch.setattr(gate_depths, "asked", lambda gate: said[0])
    sampler = broker.GateSampler()
    monkeypatch.setattr(broker, "gate_sampler", sampler)
    monkeypatch.setattr(broker, "of_gates", _eager(sampler.take))
    for html in (page(admin_client), page(admin_client, "queue", "bills")):
        assert re.search(r"bills-in</code></td><td[^>]*>12</td>", html)
        assert re.search(r"bills-out</code></td><td[^>]*>missing</td>", html)
    said[0] = None
    assert "the broker default does not answer" in page(admin_client, "queue", "bills")


# --- costs and permissions ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["queues", "queue"])
def test_a_page_takes_no_more_queries_than_it_may_however_many_lanes_there_are(
    admin_client: Client, answers: Answer, bills: WorkQueue, worker: Worker, name: str
) -> None:
    now = clock.now()
    for number in range(20):
        WorkQueue.objects.create(name=f"q{number}", created_at=now, updated_at=now)
        make_worker(f"more-{number}", now=now)
    args = ["bills"] if name == "queue" else []
    page(admin_client, name, *args)
    with looking_alone():
        page(admin_client, name, *args)


@pytest.mark.parametrize("role", ["", "viewer", "author", "operator", "admin"])
@pytest.mark.parametrize("order", lane_orders.ORDERS)
def test_an_order_is_drawn_for_who_may_give_it_and_refused_to_others(
    person: Person, answers: Answer, bills: WorkQueue, role: str, order: str
) -> None:
    client = person(role)
    is_allowed = role in ("operator", "admin")
    html = page(client, "queue", "bills", status=200 if role else 403)
    assert (f'<dialog id="{order}"' in html) == is_allowed
    url = reverse("console:queue_order", args=["bills"])
    answer = client.post(url, {"act": order, "reason": "the shop is down"})
    assert answer.status_code == (302 if is_allowed else 403)
    if not is_allowed:
        assert not QueueEvent.objects.exists()
        assert "queues." in answer.content.decode()


def test_an_order_is_kept_with_its_reason_and_who_gave_it(
    admin_client: Client, answers: Answer, bills: WorkQueue
) -> None:
    url = reverse("console:queue_order", args=["bills"])
    page(admin_client)
    for order, state in (("pause", "paused"), ("resume", "open")):
        admin_client.post(url, {"act": order, "reason": "the shop"})
        assert row(page(admin_client), "lane-bills")[1] == state
    kept = QueueEvent.objects.order_by("pk").values_list("kind", "actor", "reason")
    assert list(kept) == [
        ("paused", "user:admin", "the shop"),
        ("resumed", "user:admin", "the shop"),
    ]


@pytest.mark.parametrize("reason", ["", "  ", "x" * 201, "a\0b"])
def test_without_a_reason_nothing_is_ordered(
    admin_client: Client, answers: Answer, bills: WorkQueue, reason: str
) -> None:
    url = reverse("console:queue_order", args=["bills"])
    admin_client.post(url, {"act": "pause", "reason": reason})
    bills.refresh_from_db()
    assert not bills.is_paused


def test_a_lane_with_open_work_is_not_retired_and_says_what_it_has(
    admin_client: Client, answers: Answer, bills: WorkQueue, action: Action
) -> None:
    make_execution("requested", action=action, now=clock.now(), queue="bills", lane="input")
    url = reverse("console:queue_order", args=["bills"])
    admin_client.post(url, {"act": "retire", "reason": "moved", "back": "/console/queues/bills"})
    html = page(admin_client, "queue", "bills")
    assert "it has open executions" in html
    assert admin_client.post(url, {"act": "burn", "reason": "x"}).status_code == 404
    assert admin_client.get(url).status_code == 405
