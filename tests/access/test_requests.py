"""Whose permissions and whose idempotency keys count when work is requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.access import tokens
from orchestrator.core import clock, executions, packs
from orchestrator.core.models import Execution
from orchestrator.core.packs import InvalidPack
from orchestrator.workflows import task_templates
from orchestrator.workflows.models import Task
from tests import commands, principals
from tests.core.api.client import Caller, pointers
from tests.core.packs.folder import Folder
from tests.factories import make_action, make_worker
from tests.principals import given
from tests.security import world

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

BODY = {"action_ref": "core.echo", "idempotency_key": "k"}


@pytest.fixture
def callers() -> tuple[Caller, Caller]:
    """Two services that may do the same."""
    make_action("core.echo")
    return principals.caller("one", given("operator")), principals.caller("two", given("operator"))


# --- keys ----------------------------------------------------------------------------------------


def test_key_of_another_owner_is_no_hit(callers: tuple[Caller, Caller]) -> None:
    ids = [caller.post("/executions", BODY).json()["id"] for caller in (*callers, *callers)]
    assert ids[:2] == ids[2:]
    assert ids[0] != ids[1]
    assert Execution.objects.count() == 2


def test_key_of_another_owner_is_no_conflict(callers: tuple[Caller, Caller]) -> None:
    first, second = callers
    first.post("/executions", BODY)
    other = {**BODY, "parameters": {"other": True}}
    assert second.post("/executions", other).status_code == 201
    assert first.post("/executions", other).status_code == 409


def test_keys_of_a_bulk_are_those_of_its_owner(callers: tuple[Caller, Caller]) -> None:
    body = {"executions": [BODY, {**BODY, "idempotency_key": "other"}]}
    ids = [caller.post("/executions/bulk", body).json()["ids"] for caller in (*callers, *callers)]
    assert ids[:2] == ids[2:]
    assert not set(ids[0]) & set(ids[1])


def test_all_tokens_of_an_owner_share_its_keys(callers: tuple[Caller, Caller]) -> None:
    first = callers[0].post("/executions", BODY)
    another = tokens.create(
        name="another", owner=principals.service("one"), by=principals.ROOT, now=clock.now()
    )[1]
    second = Caller(another).post("/executions", BODY)
    assert (second.status_code, second.json()["id"]) == (200, first.json()["id"])
    assert {row.requested_by for row in Execution.objects.all()} == {"one"}


def test_commands_have_keys_of_their_own(callers: tuple[Caller, Caller]) -> None:
    callers[0].post("/executions", BODY)
    run = ["execution", "submit", "core.echo", "--idempotency-key", "k"]
    assert commands.printed(*run) == commands.printed(*run)
    assert Execution.objects.count() == 2
    assert set(Execution.objects.values_list("key_owner", flat=True)) == {
        0, principals.service("one").pk,
    }  # fmt: skip


def test_key_of_a_task_of_another_owner_is_neither_hit_nor_conflict() -> None:
    there = world.make()
    definition = {**world.definition("keyed", there.action.ref), "identity_strategy": "strict"}
    task_templates.install_templates([definition], now=clock.now())
    wanted = {"namespace": "shop", "name": "keyed", "version": "1.0.0", "idempotency_key": "k"}
    before = Task.objects.count()
    callers = [principals.caller(name, given("operator")) for name in ("one", "two")]
    for caller in callers:
        first = caller.post("/tasks", wanted)
        assert first.status_code == 201
        assert caller.post("/tasks", wanted).json()["task_uuid"] == first.json()["task_uuid"]
        assert caller.post("/tasks", {**wanted, "context": {"x": 1}}).status_code == 409
    assert Task.objects.count() == before + 2


# --- what is out of reach ------------------------------------------------------------------------


def test_action_out_of_reach_is_answered_like_an_unknown_one() -> None:
    make_action("shop.sell")
    caller = principals.caller("x", given("operator", packs=["billing-*"]))
    known, unknown = (
        caller.post("/executions", {"action_ref": ref, "parameters": {"x": 1}}).json()["errors"]
        for ref in ("shop.sell", "shop.sill")
    )
    assert [error["pointer"] for error in known] == ["/action_ref"]
    assert known[0]["message"].replace("sell", "sill") == unknown[0]["message"]


def test_worker_out_of_reach_is_answered_like_an_unknown_one() -> None:
    make_action("shop.sell")
    worker = make_worker("w1", labels={"zone": "b"})
    body = {"action_ref": "shop.sell", "worker_id": worker.pk}
    for name, zone, status in (("near", "b", 201), ("far", "c", 422)):
        caller = principals.caller(
            name, given("operator", packs=["shop"]), given("viewer", labels={"zone": zone})
        )
        response = caller.post("/executions", body)
        assert response.status_code == status
        if status == 422:
            assert pointers(response) == ["/worker_id"]
            assert f"no worker has the id {worker.pk}" in response.content.decode()


def test_versions_of_templates_out_of_reach_are_not_named() -> None:
    world.make()
    caller = principals.caller("x", given("operator", namespaces=["other"]))
    body = {"namespace": "shop", "name": "order", "version": "9.9.9"}
    assert "1.0.0" not in caller.post("/tasks", body).content.decode()


# --- dangerous actions ---------------------------------------------------------------------------


def test_dangerous_action_needs_its_own_permission_in_its_pack() -> None:
    make_action("core.shell", dangerous=True)
    body = {"action_ref": "core.shell"}
    for name, granted, status in (
        ("plain", [given("operator")], 403),
        ("elsewhere", [given("operator"), given("actions.run_any_command", packs=["x"])], 403),
        ("here", [given("operator"), given("actions.run_any_command", packs=["core"])], 201),
        ("alone", [given("actions.run_any_command")], 403),
    ):
        response = principals.caller(name, *granted).post("/executions", body)
        assert response.status_code == status, name
    detail = principals.caller("plain2", given("operator")).post("/executions", body).json()
    assert detail["detail"] == (
        "The dangerous action core.shell needs the permission actions.run_any_command"
    )


def test_action_that_becomes_dangerous_is_refused_within_a_second() -> None:
    action = make_action("core.shell")
    caller = principals.caller("x", given("operator"))
    assert caller.post("/executions", {"action_ref": "core.shell"}).status_code == 201
    action.dangerous = True
    action.save()
    assert caller.post("/executions", {"action_ref": "core.shell"}).status_code == 403


def test_task_with_a_dangerous_step_says_which_action_needs_what() -> None:
    world.make()
    caller = principals.caller("x", given("operator", packs=["shop"], namespaces=["shop"]))
    before = Task.objects.count()
    for name, expected in (
        ("shell", "The dangerous action shop.shell needs the permission actions.run_any_command"),
        (
            "mixed",
            "The action core.echo, which the template shop/mixed/1.0.0 runs, needs the permission "
            "executions.run",
        ),
    ):
        body = {"namespace": "shop", "name": name, "version": "1.0.0"}
        response = caller.post("/tasks", body)
        assert (response.status_code, response.json()["detail"]) == (403, expected)
    assert Task.objects.count() == before


def test_muster_itself_runs_what_it_accepted() -> None:
    """The engine asks without a principal: the task was checked when it was accepted."""
    make_action("core.shell", dangerous=True)
    new = executions.NewExecution(action_ref="core.shell")
    executions.request(new, requested_by="task:1", now=clock.now())
    assert Execution.objects.get().requested_by == "task:1"


def test_pack_marks_its_dangerous_actions(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "net")
    folder.write("pack.yaml", 'name: net\nversion: "1"\n')
    action = "name: run\nruntime: shell\nentry_point: [sh]\ndangerous: {}\n"
    folder.write("actions/run.yaml", action.format("true"))
    (loaded,) = packs.load(folder.path).actions
    assert loaded.dangerous
    folder.write("actions/run.yaml", action.format("maybe"))
    with pytest.raises(InvalidPack, match="dangerous: expected true or false, found 'maybe'"):
        packs.load(folder.path)


@pytest.mark.parametrize("ref", ["core.shell", "core.sha256", "drill.wait", "drill.wait_once"])
def test_our_packs_mark_what_reads_or_runs_anything(ref: str, settings: Any) -> None:
    pack = packs.load(settings.BASE_DIR / "packs" / ref.partition(".")[0])
    assert {action.ref: action.dangerous for action in pack.actions}[ref]


def test_validate_and_list_name_the_dangerous_actions(settings: Any) -> None:
    core = str(settings.BASE_DIR / "packs" / "core")
    assert "core.shell (dangerous)" in commands.printed("pack", "validate", core)
    commands.printed("pack", "install", core)
    assert "core.shell (dangerous)" in commands.printed("pack", "list")
