"""Queues in the terminal, over the API, in the admin, for Prometheus and in packs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from orchestrator.access import identities
from orchestrator.access.models import AuditEvent
from orchestrator.core import clock, packs
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.models import Execution
from orchestrator.queues import changes, metrics
from orchestrator.queues.models import QueueEvent, WorkQueue
from orchestrator.queues.shown import queues as shown
from tests import commands, principals
from tests.core.admin.pages import page
from tests.core.api.client import Caller, pointers
from tests.core.packs.folder import Folder
from tests.factories import NOW, make_action, make_execution, make_worker, seconds
from tests.principals import given
from tests.queues.play import make_queue, waiting

pytestmark = pytest.mark.usefixtures("db", "sent")

queue, execution = commands.of("queue"), commands.of("execution")

SHELL: dict[str, Any] = {
    "input_queue": "orders-in", "once": True, "classifiers": {"run": {"action": "core.shell"}},
}  # fmt: skip


# --- the terminal ---------------------------------------------------------------------------------


def test_queues_are_made_listed_and_shown() -> None:
    assert "Make one" in queue.run("list")
    assert queue.run("create", "orders", "--max-running", "3") == "orders: created\n"
    told = queue.refused("create", "orders")
    assert told == "The queue orders exists already: `queue apply` changes it"
    make_worker(queues={"orders": 2, "orders:retry": 1}, now=NOW)
    waiting(number=2)
    [listed] = queue.document("list")["items"]
    assert (listed["waiting"], listed["max_running"]) == (2, 3)
    assert [each["subscription"] for each in listed["served_by"]] == ["orders", "orders:retry"]
    assert "w1 (2 slots" in queue.run("show", "orders")
    assert "did you mean 'orders'?" in queue.refused("show", "ordres")


def test_files_are_checked_and_applied_all_or_none(tmp_path: Path) -> None:
    good, bad = tmp_path / "a.yaml", tmp_path / "b.yaml"
    good.write_text("name: a\npriority: 2\n")
    bad.write_text("name: b\naction: no.such\n")
    with pytest.raises(SystemExit) as differs:
        queue.run("apply", "--check", str(good))
    assert differs.value.code == 1
    assert not WorkQueue.objects.exists()
    assert "no action is called" in queue.refused("apply", str(good), str(bad))
    assert not WorkQueue.objects.exists()
    assert queue.run("apply", str(good)) == "a: created\n"
    assert queue.run("apply", "--check", str(good)) == "a: unchanged\n"
    good.write_text("name: a\npriority: 3\n")
    [applied] = queue.document("apply", str(good))["items"]
    assert applied["outcome"] == "updated"
    assert applied["differences"][0]["before"] == 2


def test_orders_are_given_with_a_reason() -> None:
    make_queue()
    assert queue.run("pause", "orders", "--reason", "no shop") == "orders is paused\n"
    assert "no shop" in queue.run("list")
    assert queue.document("resume", "orders", "--reason", "shop")["state"] == "open"
    waiting()
    assert "open executions" in queue.refused("retire", "orders", "--reason", "over")


def test_environment_of_caf_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "caf.env"
    file.write_text("CAF_WORKER_INPUT_QUEUE=shop-in\nCAF_RABBITMQ_HOST=r\n")
    document = queue.document("import-caf", str(file), "--name", "shop")
    assert "input_queue: shop-in" in document["file"]
    assert list(document["ignored"]) == ["CAF_RABBITMQ_HOST"]
    assert "name: shop" in queue.run("import-caf", str(file), "--name", "shop")
    assert "No such file" in queue.refused("import-caf", str(tmp_path / "none"))


def test_execution_is_submitted_to_a_queue() -> None:
    make_action()
    make_queue(action="core.echo")
    shown = execution.document("submit", "--queue", "orders")
    row = Execution.objects.get()
    assert (row.queue, row.action_ref) == ("orders", "core.echo")
    assert shown["ids"] == [str(row.pk)]
    assert "no queue is called" in execution.refused("submit", "core.echo", "--queue", "none")


@pytest.mark.usefixtures("embedded_broker")
def test_command_makes_no_gate_that_runs_what_its_identity_may_not(
    tmp_path: Path, settings: Any
) -> None:
    make_action("core.shell", dangerous=True)
    identity = principals.service("limited", given("operator"))
    settings.MUSTER = replace(settings.MUSTER, command_identity="service:limited")
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump({"name": "orders", "gate": SHELL}))
    for arguments in (["apply", str(file)], ["apply", "--check", str(file)]):
        assert "dangerous action core.shell needs the permission" in queue.refused(*arguments)
    assert not WorkQueue.objects.exists()
    identities.grant(
        identity, given("actions.run_any_command"), by=principals.ROOT, now=clock.now()
    )
    assert queue.run("apply", str(file)) == "orders: created\n"


def test_command_acts_as_its_identity(settings: Any) -> None:
    principals.service("limited", given("operator"))
    settings.MUSTER = replace(settings.MUSTER, command_identity="service:limited")
    queue.run("create", "orders")
    queue.run("pause", "orders", "--reason", "no shop")
    events = QueueEvent.objects.filter(queue__name="orders")
    assert {event.actor.partition(" as ")[2] for event in events} == {"service:limited"}


# --- the API --------------------------------------------------------------------------------------


def test_queue_is_put_with_its_revision(caller: Caller) -> None:
    made = caller.put("/queues/orders", {"max_running": 2})
    assert (made.status_code, made["ETag"]) == (201, '"1"')
    assert caller.put("/queues/orders", {"max_running": 2}).status_code == 200
    stale = caller.put("/queues/orders", {"max_running": 3}, **{"If-Match": '"7"'})
    assert stale.status_code == 409
    changed = caller.put("/queues/orders", {"max_running": 3}, **{"If-Match": '"1"'})
    assert (changed.status_code, changed.json()["revision"]) == (200, 2)
    assert caller.put("/queues/x", {}, **{"If-Match": "many"}).status_code == 422


def test_problems_with_a_queue_come_with_their_pointers(caller: Caller) -> None:
    refused = caller.put("/queues/Orders", {"max_running": 0, "gate": {"inputQueue": "amq.x"}})
    assert refused.status_code == 422
    assert pointers(refused) == ["/name", "/max_running", "/gate/inputQueue"]
    refused = caller.put("/queues/orders", {"action": "no.such"})
    assert pointers(refused) == ["/action"]


def test_gate_that_runs_what_its_author_may_not_is_refused() -> None:
    make_action("core.shell", dangerous=True)
    operator = principals.caller("operator", given("operator"))
    refused = operator.put("/queues/orders", {"gate": SHELL})
    assert refused.status_code == 403
    assert refused.json()["detail"] == (
        "The dangerous action core.shell needs the permission actions.run_any_command"
    )
    assert not WorkQueue.objects.exists()
    may = principals.caller("may", given("operator"), given("actions.run_any_command"))
    assert may.put("/queues/orders", {"gate": SHELL}).status_code == 201
    assert may.put("/queues/orders", {"gate": SHELL | {"custody": "row"}}).status_code == 200
    again = {"gate": SHELL | {"custody": "row"}, "max_running": 2}
    assert operator.put("/queues/orders", again).status_code == 200
    assert operator.put("/queues/orders", {"gate": SHELL}).status_code == 403


def test_queue_is_shown_paused_and_resumed(caller: Caller) -> None:
    make_queue(gate={"input_queue": "orders-in"})
    waiting(number=3)
    assert caller.get("/queues").json()["items"][0]["waiting"] == 3
    shown = caller.post("/queues/orders/pause", {"reason": "no shop"})
    assert (shown.json()["state"], shown.json()["pause_reason"]) == ("paused", "no shop")
    assert shown.json()["gate"]["input_queue"] == "orders-in"
    assert caller.post("/queues/orders/pause", {}).status_code == 422
    assert caller.post("/queues/orders/resume", {"reason": "shop"}).json()["state"] == "open"
    assert caller.get("/queues/none").status_code == 404


def test_what_is_shown_can_be_put_again(caller: Caller) -> None:
    make_queue(priority=3, gate={"input_queue": "orders-in", "retryLimit": 4})
    definition = shown.definition(changes.find("orders"))
    again = caller.put("/queues/orders", definition)
    assert again.json()["revision"] == 1


def test_requests_name_their_queue(caller: Caller) -> None:
    make_action()
    make_queue(priority=8)
    made = caller.post("/executions", {"action_ref": "core.echo", "queue": "orders"})
    assert (made.json()["queue"], made.json()["priority"]) == ("orders", 8)
    refused = caller.post("/executions", {"action_ref": "core.echo", "queue": "order"})
    assert pointers(refused) == ["/queue"]
    bulk = {"executions": [{"action_ref": "core.echo", "queue": "orders"}] * 2}
    assert caller.post("/executions/bulk", bulk).status_code == 201
    assert Execution.objects.in_queue("orders").count() == 3


# --- the admin ------------------------------------------------------------------------------------


def test_list_and_page_show_the_figures_and_who_paused_it(admin_client: Client) -> None:
    made = make_queue(max_running=4, gate={"input_queue": "orders-in"})
    make_worker(queues={"orders": None})
    waiting(number=2)
    changes.pause("orders", reason="the shop is down", actor="ann", now=NOW)
    html = page(admin_client, "admin:queues_workqueue_changelist")
    assert "the shop is down" in html
    assert "w1 (4 slots" in html
    html = page(admin_client, "admin:queues_workqueue_change", made.pk)
    assert "orders-in" in html
    assert "0 of at most 4" in html


def test_queue_is_paused_and_resumed_in_the_admin(admin_client: Client) -> None:
    made = make_queue()
    for verb, state in (("pause", "paused"), ("resume", "open")):
        url = reverse(f"admin:queues_workqueue_{verb}", args=[made.pk])
        admin_client.post(url, {"_form_submitted": "True", "reason": "why not"})
        assert changes.find("orders").state == state
        line = LogEntry.objects.filter(object_id=str(made.pk)).latest("pk")
        assert line.get_change_message().endswith("d: why not")
    events = AuditEvent.objects.filter(permission="admin.workqueue")
    assert [event.actor for event in events] == ["user:admin"] * 2


def test_page_of_an_execution_names_its_queue_and_why_it_waits(admin_client: Client) -> None:
    make_queue()
    changes.pause("orders", reason="the shop is down", actor="ann", now=NOW)
    [row] = waiting()
    html = page(admin_client, "admin:orchestrator_execution_change", row.pk)
    assert "the shop is down" in html


# --- metrics, packs -------------------------------------------------------------------------------


def test_metrics_are_those_of_each_queue() -> None:
    make_queue()
    make_queue("mail")
    waiting(number=2, created_at=NOW - seconds(40))
    make_execution("running", queue="orders", lane="input", worker=make_worker())
    found = {
        (sample.name, sample.labels["queue"]): sample.value
        for family in metrics.families(NOW)
        for sample in family.samples
        if "queue" in sample.labels
    }
    assert found["muster_queue_waiting", "orders"] == 2
    assert found["muster_queue_running", "orders"] == 1
    assert found["muster_queue_oldest_seconds", "orders"] == 40
    assert found["muster_queue_waiting", "mail"] == 0


def test_pack_brings_its_queues_and_closes_those_that_it_drops(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.action()
    folder.write("queues/pings.yaml", "name: pings\naction: net.ping\nmax_running: 2\n")
    packs.install(folder.load(), now=NOW)
    made = changes.find("pings")
    assert (made.max_running, str(made.action), str(made.pack)[:3]) == (2, "net.ping", "net")
    (tmp_path / "queues" / "pings.yaml").unlink()
    report = packs.install(folder.load(), now=NOW)
    assert "pings" in str(report)
    assert changes.find("pings").state == "closed"


def test_gate_of_a_pack_runs_what_its_installer_may_run(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.action()
    folder.action("shell", dangerous=True)
    gate = SHELL | {"classifiers": {"run": {"action": "net.shell"}}}
    folder.write("queues/runs.yaml", yaml.safe_dump({"name": "runs", "gate": gate}))
    installer = (given("author"), given("queues.change"))
    limited = principals.principal(*installer)
    may = principals.principal(*installer, given("actions.run_any_command"))
    with pytest.raises(PermissionMissing, match=r"net\.shell needs"):
        packs.install(folder.load(), now=NOW, principal=limited)
    assert not WorkQueue.objects.exists()
    packs.install(folder.load(), now=NOW, principal=may)
    assert changes.find("runs").gate.classifiers == gate["classifiers"]
    folder.action("pong")  # the gate stays as it is
    packs.install(folder.load(), now=NOW, principal=limited)
    gate["classifiers"]["run"] = {"action": "net.ping"}
    folder.write("queues/runs.yaml", yaml.safe_dump({"name": "runs", "gate": gate}))
    packs.install(folder.load(), now=NOW, principal=limited)
    assert changes.find("runs").gate.classifiers == {"run": {"action": "net.ping"}}


def test_problem_with_a_queue_of_a_pack_has_its_line(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.action()
    folder.write("queues/pings.yaml", "name: pings\nmax_running: none\n")
    with pytest.raises(packs.InvalidPack, match=r"pings\.yaml:2:14: max_running: expected"):
        folder.load()
