"""Policies in the terminal, over the API, in the admin, for Prometheus and in packs."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from orchestrator.access.models import AuditEvent
from orchestrator.core import packs
from orchestrator.policies import changes, metrics
from orchestrator.policies.models import Policy
from tests import commands
from tests.core.admin.pages import page
from tests.core.api.client import Caller, pointers
from tests.core.packs.folder import Folder
from tests.core.scheduling import schedule
from tests.factories import NOW, make_execution, make_worker
from tests.policies.play import make_policy, waiting
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("db", "sent")

policy = commands.of("policy")

ONE = {"ref": "one", "kind": "concurrency", "scope": "global", "limit": 1}


# --- the terminal ---------------------------------------------------------------------------------


def test_policies_are_made_changed_listed_and_removed() -> None:
    assert "Make one" in policy.run("list")
    made = policy.run(
        "create", "one", "--kind", "concurrency", "--limit", "1", "--keyed-by", "/host"
    )
    assert made == "one created: at most 1 at once, of everything, each /host\n"
    assert "There is a policy" in policy.refused("create", "one", "--kind", "rate", "--limit", "1",
                                                 "--window-seconds", "1")  # fmt: skip
    assert policy.run("change", "one", "--limit", "2").startswith("one changed: at most 2")
    [listed] = policy.document("list")["items"]
    assert (listed["limit"], listed["keyed_by"], listed["waiting"]) == (2, ["/host"], 0)
    assert "did you mean 'one'?" in policy.refused("show", "ones")
    assert "expected something to change" in policy.refused("change", "one")
    assert "is removed" in policy.run("remove", "one")
    assert "Make one" in policy.run("list")
    assert "created" in policy.run("create", "one", "--kind", "concurrency", "--limit", "1")


def test_all_problems_are_named_at_once() -> None:
    refused = policy.refused(
        "create", "one", "--kind", "rate", "--limit", "1", "--scope", "action", "--period", "day"
    )
    assert "target: missing key, expected the action that it limits" in refused
    assert "window_seconds: missing key, a rate needs a number of seconds" in refused
    assert "period: expected only with kind quota, found it with rate" in refused
    assert not Policy.objects.exists()


def test_buckets_are_shown() -> None:
    make_worker()
    make_policy("one", keyed_by=["/host"])
    assert "nothing of it has started" in policy.run("buckets", "one")
    schedule(*(make_execution(parameters={"host": "db1"}) for _ in range(3)))
    [bucket] = policy.document("buckets", "one")["items"]
    assert (bucket["key"], bucket["taken"], bucket["free"], bucket["waiting"]) == (
        'host="db1"', 1, 0, 2,
    )  # fmt: skip
    assert 'host="db1"' in policy.run("show", "one")


# --- the API --------------------------------------------------------------------------------------


def test_policy_is_made_changed_and_removed(caller: Caller) -> None:
    made = caller.post("/policies", ONE)
    assert (made.status_code, made.json()["text"]) == (201, "at most 1 at once")
    assert caller.post("/policies", ONE).status_code == 409
    changed = caller.patch("/policies/one", {"limit": 5, "enabled": False})
    assert (changed.json()["limit"], changed.json()["state"]) == (5, "disabled")
    assert caller.get("/policies/one").json()["limit"] == 5
    assert [each["ref"] for each in caller.get("/policies").json()["items"]] == ["one"]
    assert caller.get("/policies", kind="rate").json()["items"] == []
    assert caller.delete("/policies/one").json()["state"] == "removed"
    assert caller.get("/policies/one").status_code == 404
    assert caller.delete("/policies/one").status_code == 404


def test_kind_is_changed_with_what_belongs_to_it(caller: Caller) -> None:
    caller.post("/policies", ONE)
    assert pointers(caller.patch("/policies/one", {"kind": "rate"})) == [""]
    rate = caller.patch("/policies/one", {"kind": "rate", "window_seconds": 1})
    assert rate.json()["text"] == "at most 1 in 1 s"
    quota = caller.patch(
        "/policies/one",
        {"kind": "quota", "window_seconds": None, "period": "day", "timezone": "Asia/Tokyo"},
    )
    assert quota.json()["text"] == "at most 1 in a day"


def test_problems_come_with_their_pointers(caller: Caller) -> None:
    body = {
        **ONE, "kind": "quota", "period": "day", "ref": "a.b", "limit": 0, "keyed_by": ["host"],
        "on_exceed": "panic", "timezone": "Mars",
    }  # fmt: skip
    assert pointers(caller.post("/policies", body)) == [
        "/limit", "/timezone", "/keyed_by", "/on_exceed",
    ]  # fmt: skip
    assert pointers(caller.post("/policies", {**ONE, "ref": "a.b"})) == ["/ref"]
    unknown = {**ONE, "scope": "action", "target": "no.such"}
    assert pointers(caller.post("/policies", unknown)) == ["/target"]
    six = [f"/{number}" for number in range(6)]
    assert pointers(caller.post("/policies", {**ONE, "keyed_by": six})) == ["/keyed_by"]


def test_buckets_are_listed(caller: Caller) -> None:
    make_worker()
    make_policy("one")
    schedule(*waiting(2))
    [bucket] = caller.get("/policies/one/buckets").json()["items"]
    assert (bucket["key"], bucket["taken"], bucket["waiting"]) == ("", 1, 1)


# --- the admin ------------------------------------------------------------------------------------


def test_admin_shows_policies_their_buckets_and_why_an_execution_waits(
    admin_client: Client,
) -> None:
    make_worker()
    row = make_policy("one", keyed_by=["/host"])
    rows = [make_execution(parameters={"host": "db1"}) for _ in range(3)]
    schedule(*rows)
    listed = page(admin_client, "admin:policies_policy_changelist")
    assert "at most 1 at once" in listed
    shown = page(admin_client, "admin:policies_policy_change", row.pk)
    assert "db1" in shown
    of_it = page(admin_client, "admin:orchestrator_execution_change", rows[2].pk)
    assert "Waits for the policy" in of_it
    assert "Before it in line" in of_it


def test_admin_disables_and_enables_it(admin_client: Client) -> None:
    row = make_policy("one")
    for verb, is_on in (("disable", False), ("enable", True)):
        url = reverse(f"admin:policies_policy_{verb}", args=[row.pk])
        admin_client.post(url, {"_form_submitted": "True", "reason": f"a test to {verb}"})
        assert reread(row).enabled is is_on
        line = LogEntry.objects.filter(object_id=str(row.pk)).latest("pk")
        assert line.get_change_message().endswith(f"d: a test to {verb}")
    events = AuditEvent.objects.filter(permission="admin.policy")
    assert [event.actor for event in events] == ["user:admin"] * 2


# --- Prometheus -----------------------------------------------------------------------------------


def test_metrics_count_who_waits_and_who_is_refused() -> None:
    make_worker()
    make_policy("one")
    make_policy("none", limit=1, on_exceed="reject", scope="identity", target="ann")
    schedule(*waiting(3), *waiting(2, requested_by="ann"))
    numbers = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.families(NOW)
        for sample in family.samples
    }
    assert numbers["muster_policy_waiting", "one"] >= 2
    assert numbers["muster_policy_held", "one"] == 1
    assert numbers["muster_policy_oldest_wait_seconds", "one"] == 0
    assert numbers["muster_policy_rejected_total", "rate"] == 0


# --- packs ----------------------------------------------------------------------------------------

PER_HOST = """\
name: per-host
kind: concurrency
action: ping
limit: 3
keyed_by: [/host]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.action()
    return folder


def test_pack_brings_policies_that_limit_what_is_its_own(folder: Folder) -> None:
    folder.write("policies/per-host.yaml", PER_HOST)
    folder.write("policies/all.yaml", "name: all\nkind: rate\nlimit: 5\nwindow_seconds: 2\n")
    report = packs.install(folder.load(), now=NOW)
    assert {"net.per-host", "net.all"} <= set(report.created)
    row = changes.find("net.per-host")
    assert (row.scope, row.target, row.keyed_by) == ("action", "net.ping", ["/host"])
    assert (changes.find("net.all").scope, changes.find("net.all").target) == ("pack", "net")


def test_word_of_an_operator_outlives_upgrades_of_the_pack(folder: Folder) -> None:
    folder.write("policies/per-host.yaml", PER_HOST)
    packs.install(folder.load(), now=NOW)
    changes.change("net.per-host", {"enabled": False}, now=NOW)
    for refused in (
        lambda: changes.change("net.per-host", {"limit": 4}, now=NOW),
        lambda: changes.remove("net.per-host", now=NOW),
    ):
        with pytest.raises(changes.PolicyOfPack):
            refused()
    assert "net.per-host" in packs.install(folder.load(), now=NOW).unchanged
    folder.write("policies/per-host.yaml", PER_HOST.replace("3", "4"))
    assert "net.per-host" in packs.install(folder.load(), now=NOW).updated
    row = changes.find("net.per-host")
    assert (row.limit, row.enabled) == (4, False)


def test_policy_that_left_its_pack_limits_nothing(folder: Folder, tmp_path: Path) -> None:
    folder.write("policies/per-host.yaml", PER_HOST)
    packs.install(folder.load(), now=NOW)
    (tmp_path / "policies" / "per-host.yaml").unlink()
    assert "net.per-host" in packs.install(folder.load(), now=NOW).disabled
    assert not Policy.objects.in_use().exists()
    folder.write("policies/per-host.yaml", PER_HOST)
    assert "net.per-host" in packs.install(folder.load(), now=NOW).created


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PER_HOST.replace("3", "none"), r"per-host\.yaml:4:8: limit: expected a whole number"),
        (
            PER_HOST.replace("/host", "host"),
            r"per-host\.yaml:5:11: keyed_by: .* /host, found 'host'",
        ),
        (PER_HOST + "period: day\n", r"per-host\.yaml:6:9: period: expected only with kind quota"),
        (PER_HOST + "target: x\n", r"per-host\.yaml:6:1: target: unknown key"),
        (PER_HOST + "rule: x\n", r"per-host\.yaml:6:7: rule: expected one of action and rule"),
    ],
)
def test_problem_with_a_policy_of_a_pack_has_its_line(
    folder: Folder, text: str, problem: str
) -> None:
    folder.write("policies/per-host.yaml", text)
    with pytest.raises(packs.InvalidPack, match=problem):
        folder.load()


def test_action_that_the_pack_does_not_have_is_found_with_its_line(folder: Folder) -> None:
    folder.write("policies/per-host.yaml", PER_HOST.replace("ping", "pong"))
    with pytest.raises(packs.InvalidPack, match=r"per-host\.yaml:3:9: action: no action is called"):
        packs.install(folder.load(), now=NOW)
