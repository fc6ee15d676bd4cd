"""A stock Celery worker on the executor's queues, one message at a time, to the same effect."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from django.conf import settings

from orchestrator.core import clock, fleet, maintenance, messages
from orchestrator.core.states import ExecutionStatus
from settings.celery import app
from tasks import executions, watchdog
from tests.factories import make_execution, make_worker
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database")

S = ExecutionStatus


@pytest.fixture(autouse=True)
def placement(database: str, monkeypatch: pytest.MonkeyPatch) -> fleet.Placement:
    """The process's view of the fleet, of which earlier tests left nothing."""
    view = fleet.Placement()
    monkeypatch.setattr(executions, "placement", view)
    return view


def test_schedule_dispatches_what_the_message_names(sent: list[messages.Message]) -> None:
    make_worker(now=clock.now())
    named, other = make_execution(now=clock.now()), make_execution(now=clock.now())
    executions.schedule(execution_ids=[str(named.pk)], of_a_later_version=True)
    assert reread(named).status == "scheduled"
    assert reread(other).status == "requested"
    assert [message.kwargs["execution_id"] for message in sent] == [str(named.pk)]


def test_completed_frees_a_place_and_gives_it_to_the_backlog(
    sent: list[messages.Message],
) -> None:
    worker = make_worker(now=clock.now(), capacity=1)
    make_execution(S.RUNNING, now=clock.now(), started_at=clock.now(), worker=worker)
    done = make_execution(S.COMPLETED, now=clock.now(), worker=worker)
    waiting = make_execution(now=clock.now())
    executions.completed(execution_ids=[str(done.pk)])
    assert reread(waiting).status == "scheduled"


@pytest.mark.parametrize("task", [executions.run, executions.cancel])
def test_what_belongs_to_a_worker_is_refused_by_everybody_else(task: Any) -> None:
    with pytest.raises(executions.NotAWorker, match=r"manage\.py worker"):
        task(execution_id="x", attempt=1)


@pytest.mark.parametrize("tick", maintenance.functions())
def test_each_tick_runs_the_function_of_its_name(
    tick: str, instead: Callable[[str, Any], None]
) -> None:
    app.loader.import_default_modules()
    ran: list[str] = []
    for name in maintenance.functions():
        instead(name, lambda now, name=name: ran.append(name))
    app.tasks[tick]()
    app.tasks[tick]()
    assert ran == [tick]


def test_watchdog_outlives_a_function_that_fails_and_runs_the_others(
    instead: Callable[[str, Any], None],
) -> None:
    ran: list[str] = []

    def fail(**_: Any) -> None:
        raise OSError("broker away")

    first, *others = maintenance.functions()
    instead(first, fail)
    for name in others:
        instead(name, lambda now, name=name: ran.append(name))
    dog = watchdog.Watchdog(list(maintenance.functions()))
    dog.look()
    # what is slow anyway is left to beat for one interval of its own
    assert ran == [
        name
        for name in others
        if maintenance.plans([name])[name].seconds <= settings.MUSTER.maintenance_interval_seconds
    ]


def test_watchdog_looks_again_when_something_may_be_missed() -> None:
    name = "muster.check_timeouts"
    seconds = maintenance.plans([name])[name].seconds
    dog = watchdog.Watchdog([name])
    assert dog.look() == inf, "it has just run, and nothing else is waited for"
    assert dog.look() == pytest.approx(seconds * watchdog.MISSED_TICKS, abs=1)


def test_watchdog_complains_again_when_beat_came_back_and_went_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "muster.check_timeouts"
    too_long = 2 * maintenance.plans([name])[name].seconds
    dog = watchdog.Watchdog([name])
    monkeypatch.setattr(maintenance, "run", lambda *_, **__: "done")
    dog.look()
    monkeypatch.setattr(maintenance, "run", lambda *_, **__: None)
    dog.look()
    assert name in dog.missing  # it is only not due yet
    dog.missing[name] -= too_long
    dog.look()
    assert name not in dog.missing
