"""Requests that are accepted once; steps that an operator repairs; tasks that are given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from orchestrator.core import messages
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.state_machine import Move
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.engine import NewTask
from orchestrator.workflows.models import Step, Task, TransitionRecord
from tests.factories import NOW, make_action
from tests.races import at_once
from tests.workflows.play import Play, end_executions, start_executions, step, template

pytestmark = pytest.mark.usefixtures("database", "sent")

ONCE = {"retry": {"max_attempts": 1}}
VERBS: dict[str, Callable[..., Step]] = {
    "reset": engine.reset_for_retry,
    "resolve": engine.resolve_manually,
    "complete": lambda id, **told: engine.complete_manually(id, result={"n": 7}, **told),
}


def repair(play: Play, verb: str, name: str, **more: Any) -> Step:
    told = {"reason": "it had to be", "actor": "ada", "now": play.now} | more
    return VERBS[verb](play.step(name).pk, **told)


# --- requests ------------------------------------------------------------------------------------


def install(**values: Any) -> None:
    make_action()
    task_templates.install_templates([template(step("a"), **values)], now=NOW)


def ask(**values: Any) -> Task:
    known: dict[str, Any] = {"namespace": "tests", "name": "tidy", "version": "1.0.0"}
    return engine.request(NewTask(**known | values), requested_by="ada", now=NOW)


def test_request_keeps_all_that_it_was_told_and_tells_the_executors(
    sent: list[messages.Message],
) -> None:
    install()
    values = {
        "context": {"x": [1]}, "initiator": "cron", "source_system": "shop", "reason": "nightly",
        "tags": ["a", "b"], "priority": 7, "correlation_id": "c", "parent_correlation_id": "p",
    }  # fmt: skip
    task = ask(**values)
    row = Task.objects.get()
    assert {name: getattr(row, name) for name in values} == values
    assert (row.state, row.requested_by, row.environment) == ("pending", "ada", "production")
    assert [(m.task, m.kwargs) for m in sent] == [("muster.advance", {"task_ids": [str(task.pk)]})]


def test_strict_task_is_made_once_for_its_context() -> None:
    install(identity_strategy="strict")
    first = ask(context={"a": 1, "b": [2]})
    with pytest.raises(engine.TaskExists, match=str(first.pk)) as raised:
        ask(context={"b": [2], "a": 1})
    assert raised.value.task_id == first.pk
    assert ask(context={"a": 2}).pk != first.pk
    assert ask(context={"a": 1, "b": [2]}, idempotency_key="k").pk != first.pk


def test_strict_is_what_a_template_is_that_says_nothing() -> None:
    values = template(step("a"))
    del values["identity_strategy"]
    make_action()
    task_templates.install_templates([task_templates.template_from_values(values)], now=NOW)
    ask()
    with pytest.raises(engine.TaskExists):
        ask()


def test_key_of_the_caller_is_needed_and_gives_the_same_task_again() -> None:
    install(identity_strategy="caller_provided")
    with pytest.raises(engine.KeyMissing, match="need an idempotency_key"):
        ask()
    first = ask(idempotency_key="k", context={"a": 1e23})
    assert ask(idempotency_key="k", context={"a": 1e23}).pk == first.pk
    with pytest.raises(engine.TaskExists, match="another context"):
        ask(idempotency_key="k", context={"a": 2})
    assert ask(idempotency_key="l", context={"a": 2}).pk != first.pk
    assert Task.objects.count() == 2


def test_always_unique_tasks_are_always_new_and_take_no_key() -> None:
    install()
    assert ask().pk != ask().pk
    with pytest.raises(engine.TaskRefused, match="leave the key out"):
        ask(idempotency_key="k")


def test_everything_that_is_wrong_with_a_request_is_told_at_once() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["m"]}
    install(input_schema=schema)
    with pytest.raises(engine.TaskRefused) as raised:
        ask(
            context={"n": "x"}, priority=101, reason="x" * 501, tags=["x" * 101],
            correlation_id="\0",
        )  # fmt: skip
    assert [refusal.pointer for refusal in raised.value.refusals] == [
        "/context", "/context/n", "/priority", "/reason", "/correlation_id", "/tags/0",
    ]  # fmt: skip
    with pytest.raises(engine.TaskRefused, match="NUL"):
        ask(context={"m": "\0"})
    assert not Task.objects.exists()


def test_unknown_template_names_the_versions_that_there_are() -> None:
    install()
    with pytest.raises(engine.UnknownTemplate, match=r"tests/tidy/2\.0\.0; its versions are 1"):
        ask(version="2.0.0")


def test_environment_of_the_setting_applies(settings: Any) -> None:
    from dataclasses import replace

    settings.MUSTER = replace(settings.MUSTER, environment="test")
    play = Play(
        step("a", timeout_seconds=60),
        environments={"test": {"steps": {"a": {"timeout_seconds": 3}}}},
    )
    assert (play.task.environment, Execution.objects.get().timeout_seconds) == ("test", 3)


# --- repairs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_repair_of_a_failed_step_carries_the_task_to_its_end(verb: str) -> None:
    play = Play(step("a"), step("b", "a", parameters={"n": "{{ steps.a.result }}"}))
    play.exhaust("a")
    assert play.state == "blocked_by_failures"
    repaired = repair(play, verb, "a")
    if verb == "reset":
        assert (repaired.state, repaired.attempts, repaired.next_retry_at) == ("enqueued", 1, None)
        play.end("a", result={"n": 7})
    expected = {"reset": {"n": 7}, "resolve": None, "complete": {"n": 7}}[verb]
    assert play.parameters("b") == {"n": expected}
    play.end("b")
    assert play.state == "complete"
    assert "error" not in play.events()
    record = TransitionRecord.objects.filter(step=repaired, actor="ada").first()
    assert record is not None
    assert (record.from_state, record.reason) == ("error", "it had to be")


@pytest.mark.parametrize("verb", ["resolve", "complete"])
def test_repair_of_the_last_step_completes_the_task_at_once(verb: str) -> None:
    play = Play(step("a", **ONCE))
    play.fail("a")
    repair(play, verb, "a")
    assert play.state == "complete"
    assert play.events()[-5:] == [
        "blocked_by_failures", "enqueuing_steps", "steps_in_process", "evaluating_results",
        "complete",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_task_in_error_goes_on_when_a_step_is_repaired(verb: str) -> None:
    play = Play(step("a", **ONCE), step("b", "a"))
    play.fail("a")
    task = play.task
    move = Move(task.pk, task.state, task.fence)
    Task.objects.transition_many("expire", [move], now=play.now, actor="staleness")
    assert play.advance() == "error"
    repair(play, verb, "a")
    assert play.state == "steps_in_process"
    assert play.task.ended_at is None


def test_task_in_error_takes_in_what_ends_and_begins_nothing() -> None:
    play = Play(step("a"), step("b", "a"))
    task = play.task
    move = Move(task.pk, task.state, task.fence)
    Task.objects.transition_many("expire", [move], now=play.now, actor="staleness")
    play.end("a")
    assert (play.state, play.states) == ("error", {"a": "complete", "b": "pending"})


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", ["complete", "cancelled", "resolved_manually"])
def test_final_step_is_not_repaired(verb: str, state: str) -> None:
    play = Play(step("a"), step("b"))
    if state == "complete":
        play.end("a")
    elif state == "resolved_manually":
        repair(play, "resolve", "a", force=True)
    else:
        engine.cancel(play.id, reason="off", actor="ada", now=NOW)
    with pytest.raises(engine.StepIsFinal, match=state):
        repair(play, verb, "a", force=True)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_running", [False, True])
def test_busy_step_is_repaired_with_force_only_and_its_attempt_is_fenced_out(
    verb: str, is_running: bool
) -> None:
    play = Play(step("a"), step("b", "a"))
    execution_id = play.step("a").execution_id
    assert execution_id is not None
    if is_running:
        start_executions([execution_id], now=play.now)
        engine.look(now=play.now, actor="executor")
        assert play.states["a"] == "in_progress"
    with pytest.raises(engine.StepIsBusy, match="with force"):
        repair(play, verb, "a")
    repair(play, verb, "a", force=True)
    old = Execution.objects.get(pk=execution_id)
    assert old.status == ("canceling" if is_running else "cancelled")
    state = {"reset": "enqueued", "resolve": "resolved_manually", "complete": "complete"}[verb]
    assert play.states["a"] == state
    fence = play.step("a").fence
    if is_running:
        end_executions_of(play, execution_id)
    engine.note_ended([execution_id], now=play.now, actor="executor")
    assert (play.states["a"], play.step("a").fence) == (state, fence)
    if verb == "reset":
        assert play.step("a").execution_id != execution_id


def end_executions_of(play: Play, execution_id: Any) -> None:
    from orchestrator.core.reasons import Reason

    move = Move(execution_id, "canceling", 1, {"result": {"n": "late"}})
    Execution.objects.transition_many(
        "complete", [move], now=play.now, actor="w1", reason=Reason.SUCCEEDED
    )


def test_step_that_waits_for_its_retry_is_repaired_at_once() -> None:
    play = Play(step("a", retry={"backoff_base_ms": 30_000}))
    play.fail("a")
    repaired = repair(play, "reset", "a")
    assert (repaired.state, repaired.attempts) == ("enqueued", 1)
    assert (play.state, play.task.next_retry_at) == ("steps_in_process", None)


def test_pending_step_may_be_done_by_hand_and_has_nothing_to_reset() -> None:
    play = Play(step("a"), step("b", "a"), step("c", "b"))
    with pytest.raises(engine.StepIsFinal, match="nothing to reset"):
        repair(play, "reset", "b")
    repair(play, "complete", "b")
    assert play.running() == {"a", "c"}


def test_decision_and_batch_completed_by_hand_create_their_steps() -> None:
    play = Play(step("d", type="decision", **ONCE), step("x", "d"), step("y", "d"))
    play.fail("d")
    told = {"reason": "by hand", "actor": "ada", "now": play.now}
    with pytest.raises(engine.ResultRefused):
        engine.complete_manually(play.step("d").pk, result={"steps": ["z"]}, **told)  # type: ignore[arg-type]
    engine.complete_manually(play.step("d").pk, result={"steps": ["y"]}, **told)  # type: ignore[arg-type]
    assert play.running() == {"y"}


def test_result_by_hand_must_fit_the_schema_and_the_database() -> None:
    play = Play(step("a", result_schema={"type": "object", "required": ["n", "m"]}, **ONCE))
    play.fail("a")
    with pytest.raises(engine.ResultRefused, match="result_schema"):
        repair(play, "complete", "a")
    with pytest.raises(engine.ResultRefused, match="NUL"):
        engine.complete_manually(
            play.step("a").pk, result={"n": "\0"}, reason="x", actor="ada", now=NOW
        )
    assert play.state == "blocked_by_failures"


@pytest.mark.parametrize("verb", VERBS)
def test_repair_needs_a_reason_and_a_step(verb: str) -> None:
    play = Play(step("a"))
    for reason in ("", "  ", "x" * 501):
        with pytest.raises(engine.ReasonMissing):
            repair(play, verb, "a", reason=reason)
        with pytest.raises(engine.ReasonMissing):
            engine.cancel_step(play.step("a").pk, reason=reason, actor="ada", now=NOW)
    with pytest.raises(engine.UnknownStep):
        VERBS[verb](uuid4(), reason="x", actor="ada", now=NOW)


@pytest.mark.parametrize("is_running", [False, True])
def test_cancelled_step_keeps_those_after_it_waiting_and_the_rest_goes_on(is_running: bool) -> None:
    play = Play(step("a"), step("after", "a"), step("b"), step("c", "b"))
    stopped = play.step("a").execution_id
    assert stopped is not None
    if is_running:
        start_executions([stopped], now=play.now)
        engine.look(now=play.now, actor="executor")
    told: dict[str, Any] = {"reason": "the wrong door", "actor": "ada", "now": play.now}
    with pytest.raises(engine.StepIsBusy):
        engine.cancel_step(play.step("a").pk, **told)
    cancelled = engine.cancel_step(play.step("a").pk, force=True, **told)
    assert (cancelled.state, cancelled.ended_at) == ("cancelled", play.now)
    status = Execution.objects.get(pk=stopped).status
    assert status == ("canceling" if is_running else "cancelled")
    assert play.state == "steps_in_process"
    play.end("b")
    play.end("c")
    assert play.states == {"a": "cancelled", "after": "pending", "b": "complete", "c": "complete"}
    assert play.state == "blocked_by_failures"
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, entry.detail) == ("manual_dlq", "cancelled by hand: a")
    record = TransitionRecord.objects.filter(step=cancelled).last()
    assert record is not None
    assert (record.event, record.actor, record.reason) == ("cancel", "ada", "the wrong door")
    with pytest.raises(engine.StepIsFinal):
        engine.cancel_step(cancelled.pk, **told)
    assert engine.resolve(play.id, reason="x", actor="ada", now=NOW).state == "resolved_manually"


def test_cancelled_step_of_a_blocked_task_opens_no_second_investigation() -> None:
    play = Play(step("a", **ONCE), step("b", "a"))
    play.fail("a")
    told: dict[str, Any] = {"reason": "never mind", "actor": "ada", "now": play.now}
    engine.cancel_step(play.step("a").pk, **told)
    assert (play.state, play.states) == (
        "blocked_by_failures",
        {"a": "cancelled", "b": "pending"},
    )
    assert DLQEntry.objects.get().dlq_reason == "max_retries_exceeded"
    # what waits for it can still be done by hand
    assert repair(play, "complete", "b").state == "complete"


# --- giving up -----------------------------------------------------------------------------------


def test_cancelled_task_cancels_its_steps_and_their_executions() -> None:
    play = Play(step("a"), step("b"), step("c", "a"), step("d", **ONCE))
    play.fail("d")
    started = play.step("b").execution_id
    assert started is not None
    start_executions([started], now=play.now)
    task = engine.cancel(play.id, reason="not wanted", actor="ada", now=play.now)
    assert (task.state, play.state) == ("cancelled", "cancelled")
    assert set(play.states.values()) == {"cancelled"}
    statuses = sorted(Execution.objects.values_list("status", flat=True))
    assert statuses == ["canceling", "cancelled", "failed"]
    record = TransitionRecord.objects.filter(task_id=play.id, step__isnull=True).last()
    assert record is not None
    assert (record.to_state, record.actor, record.reason) == ("cancelled", "ada", "not wanted")
    assert play.advance() == "cancelled"
    with pytest.raises(engine.TaskIsFinal):
        engine.cancel(play.id, reason="again", actor="ada", now=play.now)


def test_blocked_task_can_be_resolved_as_it_is() -> None:
    play = Play(step("a", **ONCE), step("b", "a"))
    with pytest.raises(engine.TaskIsNotBlocked):
        engine.resolve(play.id, reason="x", actor="ada", now=play.now)
    play.fail("a")
    assert engine.resolve(play.id, reason="x", actor="ada", now=NOW).state == "resolved_manually"
    assert play.states == {"a": "cancelled", "b": "cancelled"}
    # who looks into it decides about the entry, not the task
    assert DLQEntry.objects.get().resolution_status == "pending"


# --- races ---------------------------------------------------------------------------------------


def test_executors_that_advance_at_once_request_each_step_once() -> None:
    play = Play(step("first"), *(step(f"s{n}", "first") for n in range(20)), step("last", "s3"))
    play.end("first", advance=False)
    assert at_once(*[play.advance] * 6) == ["steps_in_process"] * 6
    assert Execution.objects.count() == 21
    assert set(Step.objects.filter(name__startswith="s").values_list("attempts", flat=True)) == {1}


def test_repairs_at_once_have_one_winner() -> None:
    play = Play(step("a", **ONCE), step("b", "a"))
    play.fail("a")
    outcomes = at_once(*[lambda: repair(play, "resolve", "a")] * 4)
    assert sum(isinstance(each, Step) for each in outcomes) == 1, outcomes
    assert sum(isinstance(each, engine.StepIsFinal) for each in outcomes) == 3, outcomes
    assert Execution.objects.filter(status="requested").count() == 1


def test_ends_and_advances_at_once_lose_nothing() -> None:
    names = [f"s{n}" for n in range(30)]
    play = Play(*(step(name) for name in names), step("join", *names))

    def end(part: int) -> Callable[[], None]:
        from orchestrator.core.reasons import Reason

        ids = [play.step(name).execution_id for name in names[part::3]]

        def run() -> None:
            end_executions(ids, "complete", Reason.SUCCEEDED, {}, now=NOW)  # type: ignore[arg-type]
            engine.note_ended(ids, now=NOW, actor="executor")  # type: ignore[arg-type]

        return run

    assert at_once(*(end(part) for part in range(3)), play.advance)[:3] == [None] * 3
    engine.look(now=NOW, actor="executor")
    assert play.running() == {"join"}
    assert Execution.objects.count() == 31
