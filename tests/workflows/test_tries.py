"""No task takes executors with it for ever: what they die of, or fail at, is left to a person."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.db import (
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
)
from django.test.utils import CaptureQueriesContext

from orchestrator.core import executions, expressions
from orchestrator.core.database import is_outage
from orchestrator.core.models import DLQEntry
from orchestrator.workflows import engine
from orchestrator.workflows.engine import outcomes, polling, tries
from orchestrator.workflows.engine.advancing import advance_free
from orchestrator.workflows.models import Task, TaskTemplate
from orchestrator.workflows.models.tasks import QUARANTINED
from tests.factories import NOW
from tests.locks import held
from tests.races import at_once
from tests.workflows.play import Play, step

pytestmark = pytest.mark.usefixtures("database", "sent")

REPAIR: dict[str, Any] = {"reason": "the pack was repaired", "actor": "ada"}
Arm = Callable[[BaseException | None], None]


class Killed(BaseException):
    """kill -9: nothing of ours notices."""


@pytest.fixture(autouse=True)
def certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is found twice was left there, however soon."""
    monkeypatch.setattr(tries, "CERTAIN_AFTER_SECONDS", 0.0)


@pytest.fixture(autouse=True, params=[1, 32], ids=["alone", "together"])
def pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is one task's fault is so however many are advanced in one transaction."""
    monkeypatch.setattr(polling._pace, "tasks", request.param)


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """Whoever evaluates the result of a step called `poison` gets this exception."""
    evaluate = outcomes.of_result
    armed = SimpleNamespace(error=None)

    def of_result(step: Any, *arguments: Any) -> Any:
        if step.name == "poison" and armed.error is not None:
            raise armed.error
        return evaluate(step, *arguments)

    monkeypatch.setattr(outcomes, "of_result", of_result)
    return lambda error: setattr(armed, "error", error)


def poisoned() -> Play:
    """A task, the execution of whose first step has completed; nobody has advanced it since."""
    play = Play(step("poison", retry={"max_attempts": 5}), step("after", "poison"))
    play.end("poison", advance=False)
    return play


def neighbour() -> Play:
    """Another, which is advanced after it."""
    play = Play(step("a"), step("b", "a"), version="2.0.0")
    play.end("a", advance=False)
    return play


def look(play: Play, *, times: int = 1) -> None:
    """An executor looks for news."""
    for _ in range(times):
        engine.look(now=play.now, actor="executor")


def die(play: Play) -> None:
    """An executor begins, and dies of what it finds: at once, or when it is certain that nobody
    else has it in hand."""
    tries._sightings.clear()
    tries._suspended.clear()
    with pytest.raises(Killed):
        look(play, times=2)


def quarantined(poison: Arm) -> Play:
    play = poisoned()
    poison(Killed())
    die(play)
    die(play)
    look(play, times=2)
    assert play.task.is_quarantined
    return play


# --- executors that die --------------------------------------------------------------------------


def test_what_goes_on_here_is_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "MOST_REMEMBERED", 2)
    tries._suspended.clear()
    for number in range(5):
        tries.suspend(UUID(int=number))
    assert list(tries._suspended) == [UUID(int=3), UUID(int=4)], "the latest"
    tries._suspended.clear()


def test_task_of_which_two_executors_died_is_left_to_a_person(poison: Arm) -> None:
    play, beside = poisoned(), neighbour()
    poison(Killed())
    die(play)
    assert play.task.advance_tries == 1
    die(play)
    assert play.task.advance_tries == 2

    tries._sightings.clear()
    look(play, times=3)

    assert beside.running() == {"b"}
    assert (play.state, play.task.advance_tries) == ("error", QUARANTINED)
    assert play.states == {"poison": "enqueued", "after": "pending"}
    entry = DLQEntry.objects.get()
    assert (entry.subject_id, entry.dlq_reason) == (play.id, "poison")
    assert entry.original_state == "steps_in_process"
    assert entry.detail == "2 executors died, or were stopped, while they advanced it"


def test_task_that_is_quarantined_is_no_news_and_is_not_advanced(poison: Arm) -> None:
    play = quarantined(poison)
    assert engine.look(now=play.now, actor="executor") == 0
    engine.advance_all([play.id], now=play.now, actor="executor")
    assert play.advance() == "error"
    assert play.task.is_quarantined
    assert DLQEntry.objects.count() == 1


def test_executor_that_died_for_another_reason_costs_its_task_nothing(poison: Arm) -> None:
    play = poisoned()
    poison(Killed())
    die(play)
    poison(None)
    tries._sightings.clear()
    look(play, times=2)
    assert (play.running(), play.task.advance_tries) == ({"after"}, None)


def test_number_that_another_executor_has_just_written_is_no_interruption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tries, "CERTAIN_AFTER_SECONDS", 0.9)
    play = poisoned()
    Task.objects.filter(pk=play.id).update(advance_tries=2)
    look(play, times=3)
    assert (play.state, play.task.advance_tries) == ("steps_in_process", 2)
    play.advance()
    assert (play.running(), play.task.advance_tries) == ({"after"}, None)


def test_advance_that_moves_nothing_leaves_no_trace() -> None:
    play = Play(step("a"))
    engine.advance_all([play.id], now=play.now, actor="executor")
    assert play.task.advance_tries is None


def test_trace_costs_one_statement(django_assert_num_queries: Any) -> None:
    play = poisoned()
    with CaptureQueriesContext(connection) as bare:
        play.advance()
    play.end("after", advance=False)
    with CaptureQueriesContext(connection) as traced:
        engine.advance_all([play.id], now=play.now, actor="executor")
    assert play.state == "complete"
    updates = [
        each for each in traced.captured_queries if "advance_tries = 1" in (each["sql"] or "")
    ]
    assert len(updates) == 1
    assert len(traced) <= len(bare) + 1


def test_executors_that_advance_at_once_take_no_other_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tries, "CERTAIN_AFTER_SECONDS", 0.9)
    names = [f"s{number}" for number in range(6)]
    play = Play(*(step(name) for name in names), step("join", *names))

    def end_and_advance(name: str) -> None:
        play.end(name, advance=False)
        engine.advance_all([play.id], now=play.now, actor="executor")

    at_once(*(lambda name=name: end_and_advance(name) for name in names))
    look(play)
    assert (play.running(), play.task.advance_tries) == ({"join"}, None)
    assert not DLQEntry.objects.exists()


def test_task_that_somebody_else_has_in_hand_keeps_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tries, "CERTAIN_AFTER_SECONDS", 0.9)
    play, beside = poisoned(), neighbour()
    Task.objects.filter(pk=play.id).update(advance_tries=2)
    engine.advance_all([play.id, beside.id], now=play.now, actor="executor")
    assert (play.running(), play.task.advance_tries) == ({"poison"}, 2)
    assert beside.running() == {"b"}


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_task_that_somebody_holds_is_not_waited_for_by_the_others() -> None:
    plays = [poisoned(), neighbour()]
    with held(plays[0].task) as lock:
        taken = tries.begin_free([play.id for play in plays])
        assert taken == {plays[1].id}
        assert advance_free(taken | {plays[0].id}, now=NOW, actor="executor") == taken
        assert plays[1].running() == {"b"}
        lock.release()
        engine.advance_all([plays[0].id], now=NOW, actor="executor")
    assert plays[0].running() == {"after"}


# --- release -------------------------------------------------------------------------------------


def test_quarantined_task_is_advanced_by_an_executor_after_the_repair_of_a_step(
    poison: Arm,
) -> None:
    play = quarantined(poison)
    engine.resolve_manually(play.step("poison").pk, now=play.now, force=True, **REPAIR)
    assert (play.state, play.running()) == ("waiting_for_retry", set())
    look(play)
    assert play.running() == {"after"}
    play.end("after")
    assert play.state == "complete"


def test_quarantined_task_that_is_released_is_tried_again_as_it_is(poison: Arm) -> None:
    play = quarantined(poison)
    poison(None)
    engine.release(play.id, now=play.now, **REPAIR)
    assert (play.state, play.task.advance_tries) == ("waiting_for_retry", None)
    look(play)
    assert play.running() == {"after"}


def test_released_task_of_which_executors_die_again_is_quarantined_again(poison: Arm) -> None:
    play = quarantined(poison)
    engine.release(play.id, now=play.now, **REPAIR)
    die(play)
    die(play)
    look(play, times=2)
    assert (play.state, play.task.is_quarantined) == ("error", True)
    assert DLQEntry.objects.count() == 1


def test_quarantined_task_can_be_cancelled(poison: Arm) -> None:
    play = quarantined(poison)
    engine.cancel(play.id, now=play.now, **REPAIR)
    assert play.state == "cancelled"
    look(play)


def test_only_a_task_in_error_is_released_and_with_a_reason(poison: Arm) -> None:
    play = poisoned()
    with pytest.raises(engine.TaskIsNotInError, match="steps_in_process, not error"):
        engine.release(play.id, now=play.now, **REPAIR)
    with pytest.raises(engine.ReasonMissing):
        engine.release(play.id, now=play.now, reason=" ", actor="ada")
    engine.cancel(play.id, now=play.now, **REPAIR)
    with pytest.raises(engine.TaskIsFinal):
        engine.release(play.id, now=play.now, **REPAIR)


# --- executors that fail -------------------------------------------------------------------------


def test_step_at_which_the_executor_fails_twice_fails_and_no_task_waits_for_it(
    poison: Arm,
) -> None:
    play, beside = poisoned(), neighbour()
    poison(RecursionError("card 4111 1111"))
    look(play)
    assert beside.running() == {"b"}
    assert (play.states["poison"], play.task.advance_tries) == ("enqueued", 1)

    look(play)

    assert play.states == {"poison": "error", "after": "pending"}
    assert (play.state, play.task.advance_tries) == ("blocked_by_failures", None)
    error = play.step("poison").error or {}
    assert error["error"] == "template_failed"
    assert error["message"].startswith("RecursionError (test_tries.py, line ")
    assert "4111" not in str(error)
    assert "poison: template_failed: RecursionError" in DLQEntry.objects.get().detail


def test_exception_that_passes_costs_the_step_nothing(poison: Arm) -> None:
    play = poisoned()
    poison(MemoryError())
    look(play)
    poison(None)
    look(play)
    assert (play.running(), play.task.advance_tries) == ({"after"}, None)


def test_step_whose_parameters_cannot_be_rendered_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    render = expressions.render

    def fail(value: Any, *arguments: Any, **options: Any) -> Any:
        if value == {"n": "poison"}:
            raise RuntimeError
        return render(value, *arguments, **options)

    play = Play(step("a"), step("poison", "a", parameters={"n": "poison"}), step("b", "a"))
    monkeypatch.setattr(expressions, "render", fail)
    play.end("a", advance=False)
    look(play, times=2)
    assert play.states == {"a": "complete", "poison": "error", "b": "enqueued"}


def test_request_that_fails_is_found_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    request = executions.request_many

    def fail(news: Any, **values: Any) -> Any:
        if any(new.parameters == {"n": "poison"} for new in news):
            raise RecursionError
        return request(news, **values)

    play = Play(step("a"), step("poison", "a", parameters={"n": "poison"}), step("b", "a"))
    monkeypatch.setattr(executions, "request_many", fail)
    play.end("a", advance=False)
    look(play)
    assert play.states == {"a": "enqueued"} | dict.fromkeys(("poison", "b"), "pending")
    look(play)
    assert play.states == {"a": "complete", "poison": "error", "b": "enqueued"}


def test_task_that_fails_at_no_step_is_given_up_with_its_reason_and_can_be_cancelled() -> None:
    play, beside = poisoned(), neighbour()
    digest = "0" * 64
    TaskTemplate.objects.filter(tasks=play.id).update(definition={"steps": 3}, digest=digest)
    look(play)
    assert beside.running() == {"b"}
    assert play.state == "steps_in_process"
    look(play)
    assert (play.state, play.task.is_quarantined) == ("error", True)
    entry = DLQEntry.objects.get()
    assert (entry.subject_id, entry.dlq_reason) == (play.id, "max_retries_exceeded")
    assert entry.detail.startswith("template_failed: ")
    assert entry.snapshot["template_configuration"] is None
    engine.cancel(play.id, now=play.now, **REPAIR)
    assert play.state == "cancelled"


# --- the database --------------------------------------------------------------------------------


def test_outage_of_the_database_is_no_try_however_often_it_comes(poison: Arm) -> None:
    play, beside = poisoned(), neighbour()
    poison(OperationalError("server closed the connection unexpectedly"))
    look(play, times=6)
    assert beside.running() == {"b"}
    assert (play.state, play.task.advance_tries) == ("steps_in_process", 1)
    poison(None)
    look(play)
    assert (play.running(), play.task.advance_tries) == ({"after"}, None)


def test_database_that_is_away_ends_the_turn_at_the_second_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[UUID] = []

    def advance(task_id: UUID, **_: Any) -> None:
        asked.append(task_id)
        raise OperationalError("connection refused")

    def advance_free(_: Collection[UUID], **__: Any) -> set[UUID]:
        raise OperationalError("connection refused")

    plays = [poisoned(), neighbour(), Play(step("a"), version="3.0.0")]
    monkeypatch.setattr(polling, "advance", advance)
    monkeypatch.setattr(polling, "advance_free", advance_free)
    with pytest.raises(OperationalError):
        engine.advance_all([play.id for play in plays], now=plays[0].now, actor="executor")
    assert asked == [play.id for play in plays[:2]]


@pytest.mark.parametrize(
    ("kind", "sqlstate", "is_one"),
    [
        (OperationalError, "08006", True),  # connection lost
        (OperationalError, "", True),  # the same, or SQLite: database is locked
        (InterfaceError, "", True),
        (OperationalError, "40P01", True),  # deadlock
        (OperationalError, "40001", True),  # serialization
        (OperationalError, "55P03", True),  # a row is held
        (OperationalError, "53100", True),  # disk full
        (OperationalError, "57P01", True),  # shutting down
        (InternalError, "25006", True),  # read-only
        (InternalError, "25P03", False),  # computed for too long inside a transaction
        (InternalError, "XX000", False),
        (OperationalError, "54000", False),  # more than the server can hold in one value
        (DataError, "22P05", False),
        (IntegrityError, "23514", False),
        (RecursionError, "", False),
    ],
)
def test_outage_is_what_no_data_is_to_blame_for(
    kind: type[Exception], sqlstate: str, is_one: bool
) -> None:
    error = kind("told by the server")
    error.__cause__ = _Cause(sqlstate)
    assert is_outage(error) is is_one


class _Cause(Exception):
    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def test_data_that_the_database_refuses_is_a_fault_of_the_step(poison: Arm) -> None:
    play = poisoned()
    poison(DataError("unsupported Unicode escape sequence"))
    look(play, times=2)
    assert play.states["poison"] == "error"
