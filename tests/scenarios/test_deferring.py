"""An action that says "not now": it waits uncounted, and its worker pauses that queue alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.scenarios.installation import Installation

CHECK = "tests.scenarios.pack.fitness.is_fit"


SERVED = "press,mail"


class Press:
    """An installation with one worker, which serves the queues `press` and `mail`."""

    def __init__(self, muster: Installation, *, concurrency: int = 1, **queue: Any) -> None:
        self.muster = muster
        self.cold = muster.directory / "cold"
        muster.client.call("make_queue", name="press", **queue)
        muster.client.call("make_queue", name="mail")
        muster.start_executor()
        self.worker = muster.start_worker(
            "w1", concurrency=concurrency, queues=SERVED, UNFIT_FILE=str(self.cold)
        )
        muster.ready()

    def refuse(self) -> None:
        self.cold.write_text("it is cold")

    def accept(self) -> None:
        self.cold.unlink()

    def submit(self, number: int = 1, **more: Any) -> list[UUID]:
        parameters = {
            "journal": str(self.muster.journal.path),
            "label": "press",
            "cold": str(self.cold),
            "after_seconds": more.pop("after_seconds", None),
        }
        news = [{"parameters": parameters, "queue": "press", **more} for _ in range(number)]
        return self.muster.submit_many(news, "scenario.press")

    def submit_mail(self, number: int) -> list[UUID]:
        return self.muster.submit_many(
            [{"parameters": {"text": "hello"}, "queue": "mail"}] * number, "core.echo"
        )

    def deferrals(self) -> int:
        return len(self.muster.journal.notes(event="defer"))

    def wait_for_deferral(self) -> None:
        self.muster.wait_for(self.deferrals, "nothing was deferred")

    def pauses(self) -> dict[str, str]:
        pauses: dict[str, str] = self.muster.worker("w1").queue_pauses
        return pauses


def test_worker_takes_nothing_of_that_queue_and_all_of_another(
    install: Callable[..., Installation],
) -> None:
    press = Press(install(), defer_pause_seconds=600)
    muster = press.muster
    press.refuse()
    pressed = press.submit(6)
    press.wait_for_deferral()
    muster.wait_for(lambda: list(press.pauses()) == ["press"], "its row says no pause")

    mailed = press.submit_mail(20)
    for id in mailed:
        assert muster.wait_for_end(id).status == "completed"

    muster.wait_for(
        lambda: {row.status for row in muster.executions(pressed).values()} == {"requested"},
        "what was sent ahead has not come back",
    )
    assert press.deferrals() == 1, "the worker has one slot, and it was asked once"
    assert muster.journal.starts("press") == []
    for row in muster.executions(pressed).values():
        assert row.retry_count == 0
        assert row.reason in ("task_rejected", "queue_paused", "")


@pytest.mark.slow
def test_twenty_deferrals_exceed_no_retries_and_it_completes_when_it_is_accepted(
    install: Callable[..., Installation],
) -> None:
    press = Press(install(), defer_seconds=0.1, defer_pause_seconds=0.1, retry_limit=10)
    muster = press.muster
    press.refuse()
    [id] = press.submit(after_seconds=0)
    muster.wait_for(lambda: press.deferrals() >= 20, "20 deferrals", within_seconds=180)
    row = muster.execution(id)
    assert (row.retry_count, row.ended_at) == (0, None)
    press.accept()
    row = muster.wait_for_end(id)
    assert (row.status, row.retry_count) == ("completed", 0)
    assert row.attempt >= 21
    story = muster.story(id)
    assert story.count("defer") >= 20
    assert set(story) <= {"schedule", "claim", "defer", "give_back", "complete"}
    reasons = {event.reason for event in muster.events(id) if event.event == "defer"}
    assert reasons == {"task_rejected"}
    assert len(muster.journal.starts("press")) == 1


@pytest.mark.slow
def test_worker_takes_it_again_after_a_time_without_one(
    install: Callable[..., Installation],
) -> None:
    press = Press(install(), defer_seconds=0.2, defer_pause_seconds=3)
    press.refuse()
    ids = press.submit(4)
    press.wait_for_deferral()
    press.accept()
    refused_at = max(note.at for note in press.muster.journal.notes(event="defer"))
    for id in ids:
        assert press.muster.wait_for_end(id).status == "completed"
    started_at = min(note.at for note in press.muster.journal.starts("press"))
    assert started_at - refused_at >= 2.9
    press.muster.wait_for(lambda: press.pauses() == {}, "its row still says that it pauses")


@pytest.mark.slow
def test_health_check_of_the_queue_ends_the_pause_early(
    install: Callable[..., Installation],
) -> None:
    press = Press(
        install(queue_health_checks=CHECK),
        defer_seconds=0.2,
        defer_pause_seconds=600,
        health_check=CHECK,
    )
    press.refuse()
    [id] = press.submit()
    press.wait_for_deferral()
    time.sleep(6)  # it has been asked, and says that it is not healthy
    assert list(press.pauses()) == ["press"]
    press.accept()
    assert press.muster.wait_for_end(id).status == "completed"
    assert press.pauses() == {}


@pytest.mark.slow
def test_deadline_ends_endless_deferral(install: Callable[..., Installation]) -> None:
    press = Press(install(), defer_seconds=0.2, defer_pause_seconds=0.2)
    press.refuse()
    [id] = press.submit(deadline_seconds=15)
    row = press.muster.wait_for_end(id, within_seconds=45)
    assert (row.status, row.reason) == ("failed", "deadline_passed")
    assert press.deferrals() >= 2


def test_new_life_of_the_worker_has_no_pauses_and_nothing_is_lost(
    install: Callable[..., Installation],
) -> None:
    press = Press(install(), defer_seconds=0.2, defer_pause_seconds=600)
    muster = press.muster
    press.refuse()
    ids = press.submit(4)
    press.wait_for_deferral()
    muster.wait_for(press.pauses, "its row says no pause")
    press.worker.kill_tree()
    press.accept()
    muster.start_worker("w1", concurrency=1, queues=SERVED)
    for id in ids:
        row = muster.wait_for_end(id)
        # it had said "not now", and none of them had begun; but what was on its way when the worker
        # was killed is lost with it, as for all anybody knows it had begun: one whose "not now" was
        # not written yet, and the one that had its slot by then
        assert row.status in ("completed", "abandoned")
    lost = [row for row in muster.executions(ids).values() if row.status == "abandoned"]
    assert len(lost) <= 2
    assert len(muster.journal.starts("press")) == len(ids) - len(lost)


@pytest.mark.slow
def test_without_a_queue_the_action_alone_is_paused(install: Callable[..., Installation]) -> None:
    muster = install(defer_seconds=0.2, defer_pause_seconds=600)
    cold: Path = muster.directory / "cold"
    cold.touch()
    muster.start_executor()
    muster.start_worker("w1", concurrency=1)
    muster.ready()
    parameters = {"cold": str(cold)}
    refused = muster.submit_many([{"parameters": parameters}] * 3, "scenario.press_shell")
    muster.wait_for(
        lambda: list(muster.worker("w1").queue_pauses) == ["action:scenario.press_shell"],
        "it does not pause",
    )
    for id in muster.submit_many([{"parameters": {"text": "hello"}}] * 10, "core.echo"):
        assert muster.wait_for_end(id).status == "completed"
    muster.start_worker("w2", concurrency=1)
    cold.unlink()
    for id in refused:
        row = muster.wait_for_end(id)
        assert (row.status, row.retry_count) == ("completed", 0)
    assert {muster.execution(id).worker_id for id in refused} == {muster.worker("w2").id}
