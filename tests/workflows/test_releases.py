"""Steps of a running task run the releases of its request; templates that would break are named."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.executions import removal
from orchestrator.core.executions.removal import StillInUse
from orchestrator.core.models import Action, Pack
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.packs import WouldBreak, tidying
from orchestrator.workflows.models import TaskTemplate
from tests.core.packs.folder import Folder
from tests.core.packs.releasing import install, release_of, shop
from tests.factories import NOW
from tests.workflows.play import Play, step

pytestmark = pytest.mark.usefixtures("database")

STEPS = (step("one", action="net.say"), step("two", "one", action="net.say"))


@pytest.fixture
def folder(tmp_path: Any) -> Folder:
    return Folder(tmp_path / "net")


def upgraded(folder: Folder, version: int, **schema: Any) -> int:
    shop(folder, version, **schema)
    release = release_of(install(folder.path))
    forget_actions()
    return release.pk


def release_of_step(play: Play, name: str) -> int | None:
    execution = play.step(name).execution
    assert execution is not None
    return execution.release_id


def test_steps_have_the_release_of_the_tasks_request(folder):
    one = upgraded(folder, 1)
    play = Play(*STEPS)
    upgraded(folder, 2)
    play.end("one")
    assert play.task.releases == {"net": one}
    assert release_of_step(play, "one") == release_of_step(play, "two") == one


def test_steps_of_an_action_that_left_the_pack_still_run(folder):
    one = upgraded(folder, 1)
    play = Play(*STEPS)
    (folder.path / "actions/say.yaml").unlink()
    folder.action("other")
    install(folder.path, accepts_breaking=True)
    forget_actions()
    play.end("one")
    assert release_of_step(play, "two") == one


def test_a_template_may_ask_for_the_latest(folder):
    one = upgraded(folder, 1)
    play = Play(*STEPS, release="latest")
    two = upgraded(folder, 2)
    play.end("one")
    assert (release_of_step(play, "one"), release_of_step(play, "two")) == (one, two)
    assert play.task.releases is None


def test_linked_packs_are_not_pinned(folder):
    play = Play(step("one"))
    assert play.task.releases is None


class TestBreaking:
    def test_a_template_whose_step_would_be_refused_is_named(self, folder):
        upgraded(folder, 1)
        Play(*STEPS)
        shop(folder, 2, required=["n"])
        with pytest.raises(WouldBreak) as error:
            install(folder.path)
        (broken,) = error.value.broken
        assert (broken.kind, broken.ref) == ("template", "tests/tidy/1.0.0")
        assert broken.why == "its step one: net.say needs the parameter 'n'"

    def test_it_is_disabled_if_that_is_accepted_and_its_tasks_go_on(self, folder):
        one = upgraded(folder, 1)
        play = Play(*STEPS)
        shop(folder, 2, required=["n"])
        assert install(folder.path, accepts_breaking=True).broken == ("tests/tidy/1.0.0",)
        assert not TaskTemplate.objects.get().enabled
        play.end("one")
        assert release_of_step(play, "two") == one


class TestRemoval:
    def test_an_open_task_holds_up_the_removal(self, folder):
        upgraded(folder, 1)
        play = Play(*STEPS)
        play.end("one", advance=False)
        TaskTemplate.objects.update(enabled=False)
        with pytest.raises(StillInUse) as error:
            removal.finish("net", now=NOW)
        assert f"task {play.id}" in error.value.work.listed

    def test_a_task_goes_on_while_its_pack_is_drained(self, folder):
        upgraded(folder, 1)
        play = Play(*STEPS)
        TaskTemplate.objects.update(enabled=False)
        removal.begin("net", now=NOW)
        forget_actions()
        play.end("one")
        play.end("two")
        assert play.state == "complete"
        removal.finish("net", now=NOW)
        assert Pack.objects.get(name="net").removed_at == NOW

    def test_cancel_ends_the_task(self, folder):
        upgraded(folder, 1)
        play = Play(*STEPS)
        TaskTemplate.objects.update(enabled=False)
        removal.cancel("net", by="ada", now=NOW)
        assert play.state == "cancelled"
        removal.finish("net", now=NOW)


def test_content_that_a_task_may_still_ask_for_stays(folder):
    one = upgraded(folder, 1)
    Play(*STEPS)
    assert one in tidying.needed()
    assert Action.objects.get(ref="net.say").pack.release_id == one
