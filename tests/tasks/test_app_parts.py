"""A part of an app in an executor: it does what it is given, finds the rest, outlives failures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError

from orchestrator.core import clock
from orchestrator.core.models import Execution
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.models import Task
from tasks import app_parts
from tasks.app_parts import PartThread
from tests.factories import make_action, make_execution
from tests.waiting import wait_until
from tests.workflows.play import end_executions, step, template

pytestmark = pytest.mark.usefixtures("database", "sent")


@pytest.fixture
def thread() -> Iterator[PartThread]:
    part = next(each for each in app_parts.parts() if each.queue.message == "muster.advance")
    thread = PartThread(part)
    thread.start()
    yield thread
    thread.stop()
    assert not thread.is_alive()


def request() -> Task:
    make_action()
    task_templates.install_templates([template(step("a"), step("b", "a"))], now=clock.now())
    new = engine.NewTask(namespace="tests", name="tidy", version="1.0.0")
    return engine.request(new, requested_by="ada", now=clock.now())


def end(*ids: Any) -> None:
    from orchestrator.core.reasons import Reason

    end_executions(ids, "complete", Reason.SUCCEEDED, {}, now=clock.now())


def test_task_goes_on_at_once_when_it_is_told_of(
    thread: PartThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "look", lambda **_: 0)
    task = request()
    thread.give(received=[task.pk])
    wait_until(lambda: Execution.objects.count() == 1)
    first = Execution.objects.get()
    end(first.pk)
    thread.give(ended=[first.pk])
    wait_until(lambda: Execution.objects.count() == 2)


def test_task_goes_on_although_nobody_tells(thread: PartThread) -> None:
    request()
    wait_until(lambda: Execution.objects.count() == 1)
    end(Execution.objects.get().pk)
    wait_until(lambda: Execution.objects.count() == 2)


def test_what_is_received_while_it_asks_whether_anything_is_open_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = next(each for each in app_parts.parts() if each.queue.message == "muster.advance")
    id = uuid4()

    def receives(**_: Any) -> bool:
        mine.give(received=[id])
        return False

    mine = PartThread(replace(part, any_open=receives))  # type: ignore[arg-type]
    mine._work(set(), set())
    assert mine.any_open
    mine.give(ended=[id])
    assert mine.ended == {id}


def test_ends_are_asked_about_only_while_a_task_is_open(thread: PartThread) -> None:
    wait_until(lambda: not thread.any_open)
    thread.give(ended=[make_execution("completed").pk])
    assert not thread.ended
    thread.give(received=[request().pk])
    assert thread.any_open


def test_database_that_is_away_for_a_moment_stops_nothing(
    thread: PartThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_parts, "PAUSE_AFTER_ERROR_SECONDS", 0.05)
    look = engine.look
    failures = iter(range(2))

    def fail_twice(**told: Any) -> int:
        if next(failures, None) is not None:
            raise OperationalError("gone")
        return look(**told)

    monkeypatch.setattr(engine, "look", fail_twice)
    request()
    wait_until(lambda: Execution.objects.count() == 1)
    assert next(failures, None) is None
