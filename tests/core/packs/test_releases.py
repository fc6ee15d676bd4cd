"""An execution keeps the release of its acceptance; an upgrade is whole or not at all."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from orchestrator.core import executions, packs
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.models import Action, Execution, Pack, Release, ReleaseAction, add_actions
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.packs import archives, differences, releases, store, tidying
from tests.core.packs.releasing import install, release_of, shop
from tests.factories import NOW, make_execution

pytestmark = pytest.mark.usefixtures("database")

LATER = NOW + timedelta(hours=1)
NEXT_DAY = NOW + timedelta(hours=30)


def request(**values: Any) -> Execution:
    new = NewExecution(action_ref="net.say", **values)
    return executions.request(new, requested_by="ada", now=NOW)


def accepted(execution: Execution) -> Action:
    """The action as the workers run it."""
    forget_actions()
    (row,) = add_actions([Execution.objects.get(pk=execution.pk)])
    return row.action


class TestInstall:
    def test_it_makes_a_release_and_the_same_content_none(self, folder):
        shop(folder, 1)
        first = install(folder.path)
        again = install(folder.path, now=LATER)
        assert first.release == again.release == Release.objects.get().digest
        assert not again.created + again.updated + again.disabled
        assert Pack.objects.get().installed_at == NOW
        assert store.is_whole(release_of(first))

    def test_a_downgrade_is_an_install(self, folder):
        shop(folder, 1)
        one = install(folder.path).release
        shop(folder, 2)
        two = install(folder.path, now=LATER).release
        shop(folder, 1)
        assert install(folder.path, now=LATER).release == one
        assert Pack.objects.filter(release__digest=one).exists()
        assert Release.objects.get(digest=one).retired_at is None
        assert Release.objects.get(digest=two).retired_at == LATER
        assert Action.objects.get().timeout_seconds == 10

    def test_a_refused_pack_leaves_no_release(self, folder):
        folder.write("rules/r.yaml", "name: r\naction: {ref: no.thing}\ntrigger: {type: no.type}\n")
        shop(folder, 1)
        with pytest.raises(packs.InvalidPack):
            install(folder.path)
        assert not Release.objects.exists()
        assert not Pack.objects.exists()

    def test_problems_name_the_file_that_the_user_knows(self, folder):
        folder.action(timeout_seconds=0)
        with pytest.raises(packs.InvalidPack) as error:
            install(folder.path)
        (problem,) = error.value.problems
        assert problem.file == f"{folder.path}/actions/ping.yaml"
        assert problem.line > 0

    def test_a_module_that_only_the_folder_of_today_has_is_a_problem(self, folder):
        folder.action("say", runtime="python", entry_point="net.nowhere:say", parameters={})
        with pytest.raises(packs.InvalidPack, match=r"expected the module in nowhere\.py"):
            install(folder.path)

    def test_an_operators_word_outlives_upgrades(self, folder):
        shop(folder, 1)
        install(folder.path)
        Action.objects.update(enabled=False, enabled_override=False)
        shop(folder, 2)
        install(folder.path, now=LATER)
        action = Action.objects.get()
        assert (action.enabled, action.timeout_seconds) == (False, 20)

    def test_linked_code_has_no_release(self, folder):
        shop(folder, 1)
        install(folder.path)
        packs.install(packs.load(folder.path), now=LATER)
        assert Pack.objects.get().release is None
        assert Release.objects.get().retired_at == LATER
        forget_actions()
        assert request().release_id is None


class TestPinned:
    def test_an_execution_keeps_code_schema_and_limits_of_its_acceptance(self, folder):
        shop(folder, 1)
        one = release_of(install(folder.path))
        forget_actions()
        before = request()
        shop(folder, 2, required=["n"])
        two = release_of(install(folder.path, now=LATER))
        forget_actions()
        after = request(parameters={"n": 1})
        with pytest.raises(RequestRefused):
            request()
        assert (before.release_id, after.release_id) == (one.pk, two.pk)
        assert (before.timeout_seconds, after.timeout_seconds) == (10, 20)
        assert accepted(before).release == one
        assert "required" not in accepted(before).parameters_schema
        assert accepted(after).parameters_schema["required"] == ["n"]

    def test_one_that_left_the_pack_still_runs_as_it_was(self, folder):
        shop(folder, 1)
        install(folder.path)
        forget_actions()
        before = request()
        (folder.path / "actions/say.yaml").unlink()
        folder.action("other")
        install(folder.path, now=LATER)
        action = accepted(before)
        assert (action.enabled, action.entry_point) == (True, "net.work:say")
        assert not Action.objects.get(ref="net.say").enabled

    def test_a_request_may_name_the_release(self, folder):
        shop(folder, 1)
        one = release_of(install(folder.path))
        shop(folder, 2, required=["n"])
        install(folder.path, now=LATER)
        forget_actions()
        execution = request(release_id=one.pk)
        assert (execution.release_id, execution.timeout_seconds) == (one.pk, 10)

    def test_what_its_worker_lacks_is_named_with_the_release(self, folder):
        shop(folder, 1)
        one = release_of(install(folder.path))
        forget_actions()
        assert request().needed_code == (f"net@{one.pk}", f"net.say@{one.pk}")


class TestDiff:
    def test_it_says_what_would_change_and_changes_nothing(self, folder):
        shop(folder, 1)
        folder.write("gone.txt", "")
        folder.action("leaves")
        install(folder.path)
        shop(folder, 2)
        (folder.path / "gone.txt").unlink()
        (folder.path / "actions/leaves.yaml").unlink()
        folder.action("comes")
        content = archives.read(folder.path)
        with releases.loaded(content, name="net") as definition:
            found = differences.between(definition, content)
        assert (found.before, found.after) == ("1.0", "2.0")
        assert {(each.what, each.name, each.how) for each in found.changes} == {
            ("action", "net.say", "changed"),
            ("action", "net.comes", "added"),
            ("action", "net.leaves", "removed"),
            ("file", "actions/comes.yaml", "added"),
            ("file", "actions/leaves.yaml", "removed"),
            ("file", "actions/say.yaml", "changed"),
            ("file", "gone.txt", "removed"),
            ("file", "pack.yaml", "changed"),
            ("file", "work.py", "changed"),
        }
        assert Pack.objects.get().version == "1.0"

    def test_of_the_same_content_nothing_would_change(self, folder):
        shop(folder, 1)
        install(folder.path)
        content = archives.read(folder.path)
        with releases.loaded(content, name="net") as definition:
            assert differences.between(definition, content).is_none


class TestTidying:
    def test_content_that_nothing_needs_goes_after_a_day(self, folder):
        shop(folder, 1)
        one = release_of(install(folder.path))
        shop(folder, 2)
        two = release_of(install(folder.path, now=LATER))
        assert tidying.tidy(now=LATER) == {}
        assert tidying.tidy(now=NEXT_DAY) == {"releases": 1}
        one.refresh_from_db()
        assert one.content_gone_at == NEXT_DAY
        assert not one.chunks.exists()
        assert store.is_whole(two)
        assert ReleaseAction.objects.filter(release=one).exists()

    def test_content_that_an_open_execution_has_stays(self, folder):
        shop(folder, 1)
        one = release_of(install(folder.path))
        open_one = make_execution(action=Action.objects.get(), release=one)
        shop(folder, 2)
        install(folder.path, now=LATER)
        assert tidying.tidy(now=NEXT_DAY) == {}
        assert store.is_whole(one)
        assert tidying.needed() == {one.pk}
        executions.cancel(execution_id=open_one.pk, actor="ada", now=NOW)
        assert tidying.tidy(now=NEXT_DAY) == {"releases": 1}

    def test_installing_it_again_brings_the_content_back(self, folder):
        shop(folder, 1)
        one = release_of(install(folder.path))
        shop(folder, 2)
        install(folder.path, now=LATER)
        tidying.tidy(now=NEXT_DAY)
        shop(folder, 1)
        install(folder.path, now=NEXT_DAY)
        one.refresh_from_db()
        assert one.content_gone_at is None
        assert store.is_whole(one)

    def test_content_does_not_go_while_it_is_installed_again(self, folder, monkeypatch):
        shop(folder, 1)
        one = release_of(install(folder.path))
        shop(folder, 2)
        install(folder.path, now=LATER)
        shop(folder, 1)
        is_whole = store.is_whole
        tidier = threading.Thread(target=_tidied_by_another)

        def look(release: Release) -> bool:
            answer = is_whole(release)
            tidier.start()
            tidier.join(0.5)  # it waits for our row, or has removed the content
            return answer

        monkeypatch.setattr(store, "is_whole", look)
        install(folder.path, now=NEXT_DAY)
        tidier.join(60)
        one.refresh_from_db()
        assert one.content_gone_at is None
        assert is_whole(one)


def _tidied_by_another() -> None:
    try:
        tidying.tidy(now=NEXT_DAY)
    finally:
        connections.close_all()
