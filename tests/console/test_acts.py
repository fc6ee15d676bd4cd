"""Orders to workers: with a reason, by who may give them, and kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.console import ids, orders
from orchestrator.core import clock
from orchestrator.core.models import Execution, Worker, WorkerEvent
from orchestrator.queues.models import WorkQueue
from tests.factories import make_action, make_execution
from tests.principals import given, staff

Person = Callable[[str], Client]

MAY = {
    "": set(),
    "viewer": set(),
    "author": set(),
    "operator": {"cordon", "uncordon", "drain"},
    "admin": {"cordon", "uncordon", "drain", "retire"},
}


def order(client: Client, name: str, *, reason: str = "new disk", worker: str = "w1") -> int:
    url = reverse("console:order", args=[worker])
    return client.post(url, {"act": name, "reason": reason}).status_code


def test_an_order_is_kept_with_its_reason_and_who_gave_it(
    admin_client: Client, worker: Worker
) -> None:
    assert order(admin_client, "cordon") == 302
    worker.refresh_from_db()
    assert worker.cordoned
    event = WorkerEvent.objects.get(kind="cordoned")
    assert (event.actor, event.reason) == ("user:admin", "new disk")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 201, "a\0b"])
def test_without_a_reason_nothing_is_ordered(
    admin_client: Client, worker: Worker, reason: str
) -> None:
    order(admin_client, "cordon", reason=reason)
    assert not WorkerEvent.objects.exists()
    page = admin_client.get(reverse("console:worker", args=["w1"])).content.decode()
    assert "A reason of 1 to 200 characters is needed" in page


@pytest.mark.parametrize("role", MAY)
@pytest.mark.parametrize("name", orders.ORDERS)
def test_an_order_is_drawn_for_who_may_give_it_and_refused_to_others(
    person: Person, worker: Worker, role: str, name: str
) -> None:
    client = person(role)
    page = client.get(reverse("console:worker", args=["w1"])).content.decode()
    is_allowed = name in MAY[role]
    assert (f'<dialog id="{name}"' in page) == is_allowed
    assert order(client, name) == (302 if is_allowed else 403)
    if not is_allowed:
        assert not WorkerEvent.objects.exists()


def test_an_order_that_the_verb_refuses_says_why(admin_client: Client, worker: Worker) -> None:
    order(admin_client, "retire")
    page = admin_client.get(reverse("console:worker", args=["w1"])).content.decode()
    assert "w1 is up: drain it, or stop it, before it is retired" in page


def test_nothing_is_ordered_by_looking(admin_client: Client, worker: Worker) -> None:
    url = reverse("console:order", args=["w1"])
    assert admin_client.get(url, {"act": "cordon", "reason": "x"}).status_code == 405
    assert Client(enforce_csrf_checks=True).post(url, {"act": "cordon"}).status_code == 403


def test_an_order_or_a_worker_that_is_not_there_is_refused(
    admin_client: Client, worker: Worker
) -> None:
    assert order(admin_client, "explode") == 404
    assert order(admin_client, "cordon", worker="w9") == 404


def found(client: Client, words: str) -> list[str]:
    answer = client.get(reverse("console:palette"), {"q": words}).json()
    return [item["text"] for item in answer["items"]]


def test_the_palette_finds_workers_their_orders_and_pages(
    admin_client: Client, person: Person, worker: Worker
) -> None:
    assert found(admin_client, "drain w1") == ["Drain w1 …"]
    assert found(admin_client, "w1")[0] == "Worker w1"
    assert found(person("viewer"), "w1") == ["Worker w1"]
    assert found(person(""), "w1") == []
    assert "Fleet" in found(admin_client, "")


def test_the_palette_finds_queues_and_what_may_be_ordered_of_them(
    admin_client: Client, person: Person
) -> None:
    now = clock.now()
    WorkQueue.objects.create(name="mail", created_at=now, updated_at=now)
    WorkQueue.objects.create(name="print", created_at=now, updated_at=now, paused_at=now)
    assert found(admin_client, "mail") == ["Queue mail", "Pause mail …", "Retire mail …"]
    assert found(admin_client, "resume print") == ["Resume print …"]
    assert found(person("viewer"), "mail") == ["Queue mail"]
    assert found(person(""), "mail") == []


def test_the_palette_finds_an_execution_by_what_is_printed_of_its_id(
    admin_client: Client, worker: Worker
) -> None:
    execution = make_execution("completed", worker=worker, now=clock.now())
    other = make_execution("completed", worker=worker, now=clock.now())
    text, digits = str(execution.pk), execution.pk.hex
    for part in (text, digits, digits[-8:], text[-15:], f"…{digits[-6:]}", digits.upper()[-9:]):
        assert found(admin_client, part) == [f"Execution {text}"], part
    assert found(admin_client, f"{text[:13]}…{digits[-5:]}") == [f"Execution {text}"]
    both = {f"Execution {execution.pk}", f"Execution {other.pk}"}
    assert set(found(admin_client, digits[:8])) <= both
    for nothing in ("ffff0000ffff", "…zzz", "01a2…", f"{text[:13]}…{'0' * 12}"):
        assert found(admin_client, nothing) == [], nothing


def test_the_palette_looks_at_the_newest_and_finds_nothing_out_of_reach(
    admin_client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution: Execution = make_execution(action=make_action("shop.charge"), now=clock.now())
    assert found(staff("eve", given("executions.read", packs=["core"])), execution.pk.hex) == []
    assert found(admin_client, execution.pk.hex[-9:]) == [f"Execution {execution.pk}"]
    make_execution(now=clock.now())
    monkeypatch.setattr(ids, "LOOKED_AT", 1)
    assert found(admin_client, execution.pk.hex[-9:]) == []
