"""A pack that something open needs is not removed; its past stays readable."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command

from orchestrator.core import executions, fleet
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.executions import NewExecution, RequestRefused, removal
from orchestrator.core.executions.removal import StillInUse
from orchestrator.core.models import Action, Execution, Pack, Release, catalog
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.packs import releases, tidying
from orchestrator.core.packs.releases import UnknownPack
from orchestrator.core.states import ExecutionStatus
from tests import commands
from tests.core.packs.releasing import install, shop
from tests.factories import NOW, make_execution, make_worker
from tests.principals import given, principal
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database")

LATER = NOW + timedelta(hours=1)


@pytest.fixture
def pack(database: str, folder: Any) -> Pack:
    shop(folder, 1)
    install(folder.path)
    forget_actions()
    return Pack.objects.get(name="net")


def open_one(**values: Any) -> Execution:
    return make_execution(action=Action.objects.get(ref="net.say"), **values)


@pytest.mark.usefixtures("pack")
class TestRefused:
    def test_while_executions_are_open_which_are_listed(self):
        ids = [open_one().pk for _ in range(22)]
        with pytest.raises(StillInUse) as error:
            removal.finish("net", now=NOW)
        assert error.value.work.total == 22
        assert error.value.work.listed == tuple(f"execution {id}" for id in sorted(ids)[:20])
        assert f"execution {min(ids)}" in str(error.value)
        assert "and 2 more" in str(error.value)
        assert Pack.objects.get().removed_at is None
        assert Action.objects.get().enabled

    def test_an_unknown_pack(self):
        with pytest.raises(UnknownPack):
            removal.finish("nut", now=NOW)

    def test_new_requests_once_it_has_begun(self, caller):
        removal.begin("net", now=NOW)
        refused = caller.post("/executions", {"action_ref": "net.say"})
        assert refused.status_code == 422
        assert "the pack net is being removed" in refused.content.decode()
        own = executions.request(NewExecution(action_ref="net.say"), requested_by="task", now=NOW)
        assert own.pk is not None


@pytest.mark.usefixtures("pack")
class TestWithoutPermission:
    INSTALLS = given("packs.install", packs=["net"])

    def test_executions_are_counted_and_not_named(self):
        open_one()
        with pytest.raises(StillInUse) as error:
            removal.finish("net", now=NOW, principal=principal(self.INSTALLS))
        assert error.value.work.total == 1
        assert error.value.work.listed == ()
        assert "needed by 1 open: 1 more" in str(error.value)

    def test_nothing_is_cancelled_and_nothing_begins(self):
        waiting, who = open_one(), principal(self.INSTALLS)
        with pytest.raises(PermissionMissing, match=r"executions\.cancel"):
            removal.begin("net", now=NOW, principal=who, cancels=True)
        assert removal.cancel("net", by="ada", now=NOW, principal=who) == 0
        waiting.refresh_from_db()
        assert waiting.ended_at is None
        assert Pack.objects.get().draining_since is None

    def test_with_it_they_are_cancelled(self):
        open_one()
        who = principal(self.INSTALLS, given("executions.cancel", packs=["net"]))
        removal.begin("net", now=NOW, principal=who, cancels=True)
        assert removal.cancel("net", by="ada", now=NOW, principal=who) == 1


@pytest.mark.usefixtures("pack")
class TestRemoved:
    def test_its_past_stays_readable(self, caller):
        ended = open_one(status=ExecutionStatus.COMPLETED, release=Release.objects.get())
        removed = removal.finish("net", now=LATER)
        assert (removed.version, removed.actions) == ("1.0", ("net.say",))
        assert Pack.objects.get().removed_at == LATER
        assert Release.objects.get().retired_at == LATER
        assert not Action.objects.get().enabled
        assert caller.get(f"/executions/{ended.pk}").json()["action_ref"] == "net.say"
        forget_actions()
        with pytest.raises(RequestRefused):
            executions.request(NewExecution(action_ref="net.say"), requested_by="a", now=LATER)

    @pytest.mark.usefixtures("sent")
    def test_what_a_process_accepts_that_has_not_heard_of_it_still_runs(self, monkeypatch):
        make_worker()
        monkeypatch.setattr(removal, "forget_actions", lambda: None)
        monkeypatch.setattr(catalog, "KNOWN_BY_REF_FOR_SECONDS", 60.0)
        Action.objects.known_by_ref(["net.say"])
        removal.finish("net", now=NOW)
        new = NewExecution(action_ref="net.say")
        late = executions.request(new, requested_by="a", now=NOW)
        placement = fleet.Placement()
        executions.schedule([late.pk], placement=placement, now=NOW, actor="executor")
        assert reread(late).status == ExecutionStatus.SCHEDULED
        assert reread(late).release_id in tidying.needed()

    def test_one_that_is_removed_can_be_installed_again(self, folder):
        removal.finish("net", now=LATER)
        report = install(folder.path, now=LATER)
        assert report.updated == ("net.say",)
        release = releases.find("net").release
        assert release is not None
        assert release.retired_at is None
        assert Action.objects.get().enabled

    def test_one_call_cancels_no_more_than_a_request_has_time_for(self, monkeypatch):
        monkeypatch.setattr(removal, "CANCELLED_AT_ONCE", 2)
        for _ in range(3):
            open_one()
        assert [removal.cancel("net", by="ada", now=NOW) for _ in range(3)] == [2, 1, 0]

    def test_what_it_cancels_is_said(self):
        waiting = open_one()
        assert removal.cancel("net", by="ada", now=NOW) == 1
        waiting.refresh_from_db()
        assert (waiting.status, waiting.cancel_reason) == (
            "cancelled",
            "the pack net is being removed",
        )
        removal.finish("net", now=LATER)


@pytest.mark.usefixtures("pack")
class TestCommand:
    def test_open_executions_are_listed_and_nothing_is_changed(self):
        waiting = open_one()
        stderr = io.StringIO()
        with pytest.raises(SystemExit):
            call_command("pack", "remove", "net", stderr=stderr)
        assert f"execution {waiting.pk}" in stderr.getvalue()
        assert Pack.objects.get().draining_since is None

    def test_drain_waits_and_says_for_what(self):
        waiting = open_one()
        stderr, stdout = io.StringIO(), io.StringIO()
        with pytest.raises(SystemExit):
            call_command(
                "pack", "remove", "net", "--drain", "--wait-seconds", "0.1",
                stdout=stdout, stderr=stderr,
            )  # fmt: skip
        assert f"waiting for 1 open, the oldest is execution {waiting.pk}" in stdout.getvalue()
        assert Pack.objects.get().draining_since is not None

    def test_cancel_ends_what_waits_and_removes_it(self):
        open_one()
        assert "net 1.0 is removed: 1 actions" in commands.printed(
            "pack", "remove", "net", "--cancel"
        )
        assert "No pack is installed" in commands.printed("pack", "list")
        assert "removed" not in commands.printed("pack", "releases", "net")
