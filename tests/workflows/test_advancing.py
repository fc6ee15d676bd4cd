"""Tasks go on by themselves: whatever ends, whatever fails, in whatever order they are told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import clock, executions
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.reasons import WITHOUT_A_WORKER, Reason
from orchestrator.workflows import engine
from orchestrator.workflows.engine import polling
from orchestrator.workflows.engine.advancing import WAYS, advance_free
from orchestrator.workflows.models import (
    Step,
    StepDependency,
    StepExecution,
    TaskTemplate,
    TransitionRecord,
)
from orchestrator.workflows.states import TASKS, TaskState
from tests.factories import NOW, make_action, make_execution
from tests.garbage import alive, uncollected
from tests.rows import reread
from tests.workflows.play import Play, end_executions, start_executions, step

pytestmark = pytest.mark.usefixtures("database", "sent")

ONCE = {"retry": {"max_attempts": 1}}


def test_linear_task_runs_one_step_after_the_other() -> None:
    play = Play(step("a"), step("b", "a"), step("c", "b"))
    assert play.state == "steps_in_process"
    for name in "abc":
        assert play.running() == {name}
        play.end(name)
    assert play.state == "complete"
    assert play.task.ended_at == NOW
    round_trip = ["evaluating_results", "enqueuing_steps", "steps_in_process"]
    assert play.events() == [
        "initializing", "enqueuing_steps", "steps_in_process",
        *round_trip, *round_trip, "evaluating_results", "complete",
    ]  # fmt: skip


def test_diamond_waits_for_both_sides() -> None:
    play = Play(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
    play.end("a")
    assert play.running() == {"b", "c"}
    play.end("b")
    assert (play.state, play.running()) == ("waiting_for_dependencies", {"c"})
    play.end("c")
    assert play.running() == {"d"}
    play.end("d")
    assert play.state == "complete"


def test_nothing_of_an_attempt_stays_in_memory() -> None:
    play = Play(step("a"), step("b", "a"))
    with uncollected():
        kinds = (StepExecution, Step, Execution)
        before = [alive(kind) for kind in kinds]
        play.end("a")
        assert play.running() == {"b"}
        assert [alive(kind) for kind in kinds] == before


def test_task_without_steps_is_complete_at_once() -> None:
    play = Play()
    assert play.state == "complete"
    assert play.events() == ["initializing", "complete"]


def test_parameters_are_expressions_over_context_and_results() -> None:
    play = Play(
        step("price", parameters={"n": "{{ task.context.number }}", "plain": "{n}"}),
        step(
            "bill",
            "price",
            parameters={
                "text": "{{ steps.price.result.total }} for {{ task.context.who }}",
                "native": ["{{ steps.price.result.total + 1 }}", "{{ steps.price.result.lines }}"],
                "once": "{{ task.context.trick }}",
            },
        ),
        context={"number": 3, "who": "Ada", "trick": "{{ 1 + 1 }}"},
    )
    assert play.parameters("price") == {"n": 3, "plain": "{n}"}
    play.end("price", result={"total": 41, "lines": [{"sku": "x"}]})
    assert play.parameters("bill") == {
        "text": "41 for Ada",
        "native": [42, [{"sku": "x"}]],
        "once": "{{ 1 + 1 }}",
    }


def test_parameters_without_a_value_are_an_error_of_their_step_alone() -> None:
    play = Play(
        step("bad", parameters={"x": "{{ task.context.missing }}"}),
        step("good"),
        step("after", "bad"),
    )
    assert play.states == {"bad": "error", "good": "enqueued", "after": "pending"}
    assert "there is no 'missing'" in (play.step("bad").error or {})["message"]
    play.end("good")
    assert play.state == "blocked_by_failures"


def test_action_that_refuses_its_parameters_is_an_error_of_its_step_alone() -> None:
    make_action("core.strict", parameters_schema={"properties": {"n": {"type": "integer"}}})
    play = Play(step("bad", action="core.strict", parameters={"n": "x"}), step("good"))
    assert play.states == {"bad": "error", "good": "enqueued"}
    assert "/parameters/n" in (play.step("bad").error or {})["message"]


def test_execution_has_the_priority_timeout_and_correlation_of_its_task() -> None:
    play = Play(step("a", timeout_seconds=7))
    execution = Execution.objects.get()
    assert execution.timeout_seconds == 7
    assert execution.correlation_id == str(play.id)
    assert execution.requested_by == f"task:{play.id}"
    link = StepExecution.objects.get()
    assert (link.execution_id, link.step_id, link.fence) == (execution.pk, play.step("a").pk, 1)


# --- conditions ----------------------------------------------------------------------------------


def test_step_whose_condition_is_false_is_skipped_and_its_children_run() -> None:
    play = Play(
        step("a", when="{{ task.context.amount > 100 }}"),
        step("b", "a", when="task.context.amount > 1"),
        step("c", "b", when=False),
        step("d", "c"),
        context={"amount": 50},
    )
    assert play.states["a"] == "complete"
    assert play.step("a").execution is None
    assert play.running() == {"b"}
    play.end("b")
    assert play.running() == {"d"}
    records = TransitionRecord.objects.filter(event="skip").values_list("reason", flat=True)
    assert list(records) == ["its `when` is false"] * 2


def test_task_of_skipped_steps_is_complete_at_once() -> None:
    play = Play(step("a", when=False), step("b", "a", when=False))
    assert play.state == "complete"


# --- failures and retries ------------------------------------------------------------------------


def test_failed_step_is_tried_again_after_one_two_and_four_seconds() -> None:
    play = Play(step("a", retry={"max_attempts": 4}))
    for attempt, seconds in ((1, 1), (2, 2), (3, 4)):
        play.fail("a")
        failed = play.step("a")
        assert (failed.state, failed.attempts) == ("waiting_for_retry", attempt)
        assert failed.next_retry_at == play.now + timedelta(seconds=seconds)
        assert failed.last_failure_at == play.now
        assert (play.state, play.task.next_retry_at) == ("waiting_for_retry", failed.next_retry_at)
        assert play.task.clock_started_at == failed.next_retry_at
        play.wait(seconds - 0.001)
        assert play.advance() == "waiting_for_retry"
        play.wait(0.001)
        assert play.advance() == "steps_in_process"
        assert play.task.next_retry_at is None
    play.end("a")
    assert play.state == "complete"
    assert StepExecution.objects.filter(step=play.step("a")).count() == 4


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [
        ({"backoff_base_ms": 100}, 0.1),
        ({"backoff_base_ms": 90_000}, 30),
        ({"backoff_base_ms": 90_000, "max_backoff_ms": 60_000}, 60),
        ({"backoff": "linear", "backoff_base_ms": 700}, 0.7),
    ],
)
def test_backoff_is_what_the_template_says(retry: dict[str, Any], seconds: float) -> None:
    play = Play(step("a", retry=retry))
    play.fail("a")
    assert play.step("a").next_retry_at == NOW + timedelta(seconds=seconds)


def test_step_without_backoff_is_tried_again_at_once() -> None:
    play = Play(step("a", retry={"backoff": "none"}))
    play.fail("a")
    assert (play.states["a"], play.step("a").attempts) == ("enqueued", 2)


def test_step_that_is_not_retryable_fails_at_once() -> None:
    play = Play(step("a", retry={"retryable": False, "max_attempts": 5}))
    play.fail("a")
    assert (play.states["a"], play.state) == ("error", "blocked_by_failures")


@pytest.mark.parametrize("reason", sorted(WITHOUT_A_WORKER))
def test_task_that_found_no_worker_is_an_investigation_of_the_fleet(reason: str) -> None:
    play = Play(step("a", **ONCE))
    lose(play, "a", reason=reason)
    assert play.state == "blocked_by_failures"
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, entry.subject_id) == ("worker_unavailable", play.id)
    assert entry.detail.startswith("a: no worker")


def test_step_that_failed_by_itself_is_to_blame_whatever_befell_the_others() -> None:
    play = Play(step("a", **ONCE), step("b", **ONCE))
    play.fail("a", advance=False)
    lose(play, "b", reason=Reason.WORKER_LOST)
    assert DLQEntry.objects.get().dlq_reason == "max_retries_exceeded"


def lose(play: Play, name: str, *, reason: str) -> None:
    """The step's execution ends for want of a worker."""
    result = {"error": "no worker", "message": "gone", "failed_by": "executor"}
    execution_id = play.step(name).execution_id
    assert execution_id is not None
    end_executions([execution_id], "fail", Reason(reason), result, now=play.now)
    play.advance()


def test_last_failure_blocks_the_task_and_opens_an_investigation() -> None:
    play = Play(step("a", **ONCE), step("b", "a"), step("c"))
    play.fail("a", message="card declined")
    assert play.states == {"a": "error", "b": "pending", "c": "enqueued"}
    assert play.state == "waiting_for_dependencies"
    assert not DLQEntry.objects.exists()
    play.end("c")
    assert play.state == "blocked_by_failures"
    entry = DLQEntry.objects.get()
    assert entry.dlq_reason == "max_retries_exceeded"
    assert "a: ActionFailed: card declined" in entry.detail
    play.wait(60)
    assert play.advance() == "blocked_by_failures"
    assert DLQEntry.objects.count() == 1


def test_other_branches_go_on_while_a_step_waits_for_its_retry() -> None:
    play = Play(step("a"), step("b"), step("c", "b"))
    play.fail("a")
    play.end("b")
    assert play.running() == {"c"}
    due = play.step("a").next_retry_at
    assert play.task.next_retry_at == due
    play.wait(1)
    play.advance()
    assert play.running() == {"a", "c"}


def test_execution_that_somebody_cancelled_is_not_tried_again() -> None:
    play = Play(step("a"))
    execution_id = play.step("a").execution_id
    assert execution_id is not None
    executions.cancel(execution_id=execution_id, actor="ada", now=NOW)
    assert play.advance() == "blocked_by_failures"
    assert play.step("a").state == "error"


def test_execution_that_was_deleted_counts_as_failed() -> None:
    play = Play(step("a"))
    Execution.objects.all().delete()
    assert play.advance() == "waiting_for_retry"


def test_result_that_does_not_fit_its_schema_is_a_failure() -> None:
    schema = {"type": "object", "required": ["id"]}
    play = Play(step("a", result_schema=schema, **ONCE))
    play.end("a", result={"name": "x"})
    assert play.state == "blocked_by_failures"
    assert "result_schema" in (play.step("a").error or {})["message"]


@pytest.mark.parametrize(
    ("schema", "result"),
    [
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 60 + "!"}),
        (
            {"properties": {"a": {"uniqueItems": True}}},
            {"a": [{"i": i // 2} for i in range(2_000)]},
        ),
    ],
)
def test_result_made_to_take_for_ever_is_a_failure(schema: Any, result: Any) -> None:
    play = Play(step("a", result_schema=schema, **ONCE))
    play.end("a", result=result)
    assert play.state == "blocked_by_failures"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a": {"pattern": "(?=a)a"}}}, "cannot be used at /properties/a/pattern"),
        ({"allOf": [{"$ref": "#"}]}, "cannot be used at /allOf/0/$ref"),
    ],
)
def test_stored_schema_that_would_be_refused_now_fails_its_step(schema: Any, message: str) -> None:
    play = Play(step("a", **ONCE))
    template = TaskTemplate.objects.get()
    template.definition["steps"][0]["result_schema"] = schema
    template.digest = f"{len(message):064}"  # by which definitions are cached
    template.save()
    play.end("a", result={"a": "b"})
    assert play.state == "blocked_by_failures"
    assert message in (play.step("a").error or {})["message"]


def test_error_of_a_step_has_no_character_of_a_secret_result() -> None:
    schema = {"properties": {"pin": {"type": "integer", "secret": True}}}
    play = Play(step("a", result_schema=schema, **ONCE))
    play.end("a", result={"pin": "hush"})
    assert "found a value that is secret" in (play.step("a").error or {})["message"]
    assert "hush" not in str(play.step("a").error)


# --- decisions -----------------------------------------------------------------------------------

ROUTES = (
    step("check", type="decision"),
    step("ship", "check"),
    step("track", "ship"),
    step("refund", "check"),
    step("hold", "check"),
    step("close", "track", "refund", "hold", type="deferred"),
)


def test_decision_creates_what_it_names_and_convergence_waits_for_that_alone() -> None:
    play = Play(*ROUTES)
    assert play.states == {"check": "enqueued", "close": "pending"}
    play.end("check", result={"steps": ["ship"]})
    assert play.states == {
        "check": "complete", "ship": "enqueued", "track": "pending", "close": "pending",
    }  # fmt: skip
    play.end("ship")
    assert play.running() == {"track"}
    play.end("track")
    assert play.running() == {"close"}
    play.end("close")
    assert play.state == "complete"


def test_decision_that_names_several_is_waited_for_with_all() -> None:
    play = Play(*ROUTES)
    play.end("check", result={"steps": ["refund", "hold"]})
    play.end("refund")
    assert play.states["close"] == "pending"
    play.end("hold")
    assert play.running() == {"close"}


def test_decision_that_names_nothing_leads_straight_to_the_convergence() -> None:
    play = Play(*ROUTES)
    play.end("check", result={"steps": []})
    assert play.running() == {"close"}


def test_decision_inside_a_branch_is_waited_for_too() -> None:
    play = Play(
        step("first", type="decision"),
        step("second", "first", type="decision"),
        step("deep", "second"),
        step("other", "first"),
        step("close", "deep", "other", type="deferred"),
    )
    play.end("first", result={"steps": ["second"]})
    assert play.states == {"first": "complete", "second": "enqueued", "close": "pending"}
    play.end("second", result={"steps": ["deep"]})
    assert play.states["close"] == "pending"
    play.end("deep")
    assert play.running() == {"close"}


@pytest.mark.parametrize("result", [{"steps": ["close"]}, {"steps": ["nothing"]}, {"steps": 3}, {}])
def test_decision_that_says_nothing_sensible_fails(result: Any) -> None:
    routes = [dict(ROUTES[0]) | ONCE, *ROUTES[1:]]
    play = Play(*routes)
    play.end("check", result=result)
    assert play.states == {"check": "error", "close": "pending"}
    assert (play.step("check").error or {})["error"] == "result refused"


def test_cycle_that_a_decision_makes_is_an_error_with_its_own_reason() -> None:
    play = Play(step("choose", type="decision"), step("a", "choose"), step("b", "choose", "a"))
    wanted = [{"name": "a", "dependencies": ["b"]}, "b"]
    play.end("choose", result={"steps": wanted})
    assert play.state == "error"
    entry = DLQEntry.objects.get()
    assert entry.dlq_reason == "dependency_cycle_detected"
    assert "a -> b -> a" in entry.detail or "b -> a -> b" in entry.detail
    assert play.events()[-2:] == ["enqueuing_steps", "error"]


# --- batches -------------------------------------------------------------------------------------


def batch(strategy: str = "continue_on_failure", **values: Any) -> Play:
    batching = {"batch_size": 10, "parallelism": 2, "failure_strategy": strategy}
    return Play(
        step("plan", type="batchable", batch=batching | values),
        step(
            "work", "plan", type="batch_worker", **ONCE,
            parameters={"from": "{{ batch.start }}", "to": "{{ batch.end }}"},
        ),
        step(
            "report", "work",
            parameters={"n": "{{ steps.work.results|map(attribute='n')|sum }}"}
            if strategy == "isolate" else {"failed": "{{ steps.work.failed }}"},
        ),
    )  # fmt: skip


def test_batch_is_divided_runs_so_many_at_once_and_converges_once() -> None:
    play = batch("isolate")
    play.end("plan", result={"cursor": {"start": 0, "end": 35}})
    names = ["work_001", "work_002", "work_003", "work_004"]
    assert [name for name in play.states if name.startswith("work")] == names
    assert play.running() == {"work_001", "work_002"}
    assert play.parameters("work_001") == {"from": 0, "to": 10}
    play.end("work_001", result={"n": 1})
    assert play.running() == {"work_002", "work_003"}
    play.end("work_002", "work_003", result={"n": 2})
    assert play.running() == {"work_004"}
    assert play.parameters("work_004") == {"from": 30, "to": 35}
    assert play.states["report"] == "pending"
    play.end("work_004", result={"n": 3})
    assert play.running() == {"report"}
    assert play.parameters("report") == {"n": 8}
    play.end("report")
    assert play.state == "complete"


def test_batch_may_say_its_own_size() -> None:
    play = batch()
    play.end("plan", result={"cursor": {"start": 0, "end": 100}, "batch_size": 50})
    assert len(play.running()) == 2
    assert play.step("work_002").batch == {"index": 2, "start": 50, "end": 100, "size": 50}


def test_batch_of_nothing_converges_at_once() -> None:
    play = batch()
    play.end("plan", result={"cursor": {"start": 7, "end": 7}})
    assert play.running() == {"report"}
    assert play.parameters("report") == {"failed": 0}


def test_batch_that_continues_converges_in_spite_of_failures() -> None:
    play = batch("continue_on_failure")
    play.end("plan", result={"cursor": {"start": 0, "end": 30}})
    play.fail("work_001")
    play.end("work_002", "work_003")
    assert play.parameters("report") == {"failed": 1}
    play.end("report")
    assert (play.state, play.states["work_001"]) == ("complete", "error")


def test_batch_that_continues_tolerates_a_worker_that_is_cancelled() -> None:
    play = batch("continue_on_failure")
    play.end("plan", result={"cursor": {"start": 0, "end": 30}})
    engine.cancel_step(
        play.step("work_001").pk, reason="its part is gone", actor="ada", now=play.now, force=True
    )
    play.end("work_002", "work_003")
    assert play.parameters("report") == {"failed": 1}
    play.end("report")
    assert (play.state, play.states["work_001"]) == ("complete", "cancelled")


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("through", ["decide", "other"])
def test_failure_of_a_worker_is_tolerated_by_a_step_of_a_decision_whichever_comes_first(
    batch_first: bool, through: str
) -> None:
    """`report` is named by the decision, or follows from a step that is."""
    play = Play(
        step("decide", type="decision"),
        step("other", "decide"),
        step("scan", type="batchable", batch={"batch_size": 10}),
        step("chunk", "scan", type="batch_worker", **ONCE),
        step("report", through, "chunk"),
    )
    moves = [
        lambda: play.end("decide", result={"steps": [{"decide": "report"}.get(through, through)]}),
        lambda: play.end("scan", result={"cursor": {"start": 0, "end": 20}}),
    ]
    for move in reversed(moves) if batch_first else moves:
        move()
    if through == "other":
        play.end("other")
    edges = StepDependency.objects.filter(child__name="report")
    tolerates = dict(edges.values_list("parent__name", "tolerates_failure"))
    assert {name for name, value in tolerates.items() if value} == {"chunk_001", "chunk_002"}
    play.fail("chunk_001")
    play.end("chunk_002")
    assert play.running() == {"report"}
    play.end("report")
    assert play.state == "complete"


def test_batch_that_isolates_is_not_tolerated_by_a_step_that_a_decision_adds_later() -> None:
    batching = {"batch_size": 10, "failure_strategy": "isolate"}
    play = Play(
        step("decide", type="decision"),
        step("scan", type="batchable", batch=batching),
        step("chunk", "scan", type="batch_worker", **ONCE),
        step("report", "decide", "chunk"),
    )
    play.end("scan", result={"cursor": {"start": 0, "end": 20}})
    play.end("decide", result={"steps": ["report"]})
    play.fail("chunk_001")
    play.end("chunk_002")
    assert (play.state, play.states["report"]) == ("blocked_by_failures", "pending")


def test_batch_that_isolates_runs_the_others_and_waits_for_the_repair() -> None:
    play = batch("isolate")
    play.end("plan", result={"cursor": {"start": 0, "end": 30}})
    play.fail("work_001")
    play.end("work_002", "work_003", result={"n": 1})
    assert play.state == "blocked_by_failures"
    assert play.states["report"] == "pending"
    engine.complete_manually(
        play.step("work_001").pk, result={"n": 5}, reason="by hand", actor="ada", now=play.now
    )
    assert play.parameters("report") == {"n": 7}


WITHOUT_PART = {"from": "{{ task.context.parts[batch.index - 1] }}"}
"""Parameters of a worker that cannot be requested if the context has no part for it."""


def refusing(parts: Sequence[Any], strategy: str, *, workers: int, **values: Any) -> Play:
    """A batch of workers of which those without a part, or with one that is no text, cannot be
    requested."""
    text = {"type": "object", "properties": {"from": {"type": "string"}}}
    make_action("core.text", parameters_schema=text)
    play = Play(
        step(
            "plan", type="batchable",
            batch={"batch_size": 1, "parallelism": 2, "failure_strategy": strategy} | values,
        ),
        step("work", "plan", type="batch_worker", action="core.text", parameters=WITHOUT_PART),
        step("report", "work", parameters={"failed": "{{ steps.work.failed }}"}),
        context={"parts": parts},
    )  # fmt: skip
    play.end("plan", result={"cursor": {"start": 0, "end": workers}})
    return play


def test_batch_of_which_no_worker_can_be_requested_converges_at_once_if_it_continues() -> None:
    play = refusing([], "continue_on_failure", workers=5)
    assert play.running() == {"report"}
    assert play.parameters("report") == {"failed": 5}
    play.end("report")
    assert play.state == "complete"


@pytest.mark.parametrize("strategy", ["continue_on_failure", "isolate"])
def test_worker_that_cannot_be_requested_leaves_its_place_to_the_next(strategy: str) -> None:
    play = refusing([1, 2, "c", 4, "e", "f", 7], strategy, workers=7)
    assert play.running() == {"work_003", "work_005"}
    assert play.states["work_006"] == play.states["work_007"] == "pending"
    assert {play.states[f"work_00{n}"] for n in (1, 2, 4)} == {"error"}
    play.end("work_003")
    assert play.running() == {"work_005", "work_006"}
    play.end("work_005", "work_006")
    assert play.states["work_007"] == "error"
    is_over = strategy == "continue_on_failure"
    assert play.running() == ({"report"} if is_over else set())
    assert play.state == ("steps_in_process" if is_over else "blocked_by_failures")


def test_batch_that_fails_fast_begins_no_other_worker_if_one_cannot_be_requested() -> None:
    play = refusing([1, 2, "c", "d"], "fail_fast", workers=4)
    assert play.running() == set()
    assert play.states["work_003"] == play.states["work_004"] == "pending"
    assert play.state == "blocked_by_failures"


@pytest.mark.parametrize("part", [1, None])
def test_thousand_workers_that_cannot_be_requested_take_few_looks(
    part: Any, django_assert_max_num_queries: Any
) -> None:
    """Twice as many in each look: not one look, of several statements, for each of them."""
    parts = [part] * 1_000 + ["good", "good"] if part else []
    with django_assert_max_num_queries(250):
        play = refusing(parts, "isolate", workers=1_002, parallelism=1)
    assert play.running() == ({"work_1001"} if part else set())


def test_batch_that_fails_fast_begins_no_worker_after_a_failure_until_it_is_repaired() -> None:
    play = batch("fail_fast")
    play.end("plan", result={"cursor": {"start": 0, "end": 40}})
    play.fail("work_001")
    assert play.running() == {"work_002"}
    play.end("work_002")
    assert play.state == "blocked_by_failures"
    assert play.states["work_003"] == "pending"
    engine.resolve_manually(
        play.step("work_001").pk, reason="not needed", actor="ada", now=play.now
    )
    assert play.running() == {"work_003", "work_004"}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({}, "a batchable step must return"),
        (7, "1000}}, found 7"),
        ({"cursor": {"start": 0}}, "1000}}, found an object of 1"),
        ({"cursor": {"start": True, "end": 5}}, "found start true and end 5"),
        ({"cursor": {"start": 5, "end": 0}}, "ends at its start or later, found 5 to 0"),
        ({"cursor": {"start": 0, "end": 10**9}}, "raise batch_size"),
        ({"cursor": {"start": 0, "end": 9}, "batch_size": 0}, "found 0"),
    ],
)
def test_batch_that_cannot_be_divided_fails(result: Any, message: str) -> None:
    play = batch()
    for _ in range(3):
        play.end("plan", result=result)
        play.wait(60)
        play.advance()
    assert play.states["plan"] == "error"
    assert message in str(play.step("plan").error)
    assert not [name for name in play.states if name.startswith("work_")]


# --- idempotent, cheap, and found without messages -----------------------------------------------


def test_advancing_again_changes_nothing() -> None:
    play = Play(step("a"), step("b", "a"))
    before = (Step.objects.values_list("pk", "fence"), Execution.objects.count())
    seen = [list(before[0]), before[1], TransitionRecord.objects.count()]
    for _ in range(3):
        assert play.advance() == "steps_in_process"
    assert [
        list(before[0].all()),
        Execution.objects.count(),
        TransitionRecord.objects.count(),
    ] == seen


def test_advancing_an_unknown_task_says_so() -> None:
    with pytest.raises(engine.UnknownTask):
        engine.advance(uuid4(), now=NOW, actor="executor")


@pytest.mark.parametrize("shape", ["wide", "linear"])
def test_number_of_queries_does_not_grow_with_the_steps(shape: str) -> None:
    counts = {}
    for size in (10, 100, 1_000):
        steps = [step("first"), *(
            step(f"s{n}", "first" if shape == "wide" or n == 0 else f"s{n - 1}")
            for n in range(size)
        )]  # fmt: skip
        play = Play(*steps, name=f"{shape}{size}")
        play.end("first", advance=False)
        forget_actions()  # or it would depend on the time whether they are read again
        with CaptureQueriesContext(connection) as queries:
            play.advance()
        assert len(play.running()) == (size if shape == "wide" else 1)
        counts[size] = len(queries)
    assert counts[10] == counts[100] == counts[1_000], counts


def test_progress_in_the_same_state_starts_its_clock_again() -> None:
    play = Play(step("a"), step("b"))
    play.wait(100)
    play.end("a")
    assert play.state == "steps_in_process"
    assert play.task.clock_started_at == play.now
    assert play.task.state_entered_at == NOW


def test_look_finds_what_no_message_told_of() -> None:
    play = Play(step("a"), step("b", "a"))
    execution_id = play.step("a").execution_id
    assert execution_id is not None
    start_executions([execution_id], now=play.now)
    engine.look(now=play.now, actor="executor")
    assert play.states["a"] == "in_progress"
    play.end("a", advance=False)
    engine.look(now=play.now, actor="executor")
    assert play.running() == {"b"}


def test_look_begins_tasks_whose_request_was_lost_and_wakes_retries() -> None:
    play = Play(step("a"))
    new = engine.NewTask(namespace="tests", name="tidy", version="1.0.0")
    lost = engine.request(new, requested_by="ada", now=NOW)
    engine.look(now=NOW, actor="executor")
    assert reread(lost).state == "pending"
    play.fail("a")
    play.wait(1.5)
    engine.look(now=play.now, actor="executor")
    assert reread(lost).state == "steps_in_process"
    assert play.running() == {"a"}


def test_look_begins_what_was_requested_before_the_clock_was_set_back() -> None:
    Play(step("a"))
    new = engine.NewTask(namespace="tests", name="tidy", version="1.0.0")
    lost = engine.request(new, requested_by="ada", now=NOW + timedelta(minutes=10))
    engine.look(now=NOW, actor="executor")
    assert reread(lost).state == "steps_in_process"


def test_end_of_executions_that_belong_to_nobody_costs_one_query() -> None:
    ids = [make_execution("completed").pk for _ in range(5)]
    with CaptureQueriesContext(connection) as queries:
        assert engine.note_ended(ids, now=NOW, actor="executor") == 0
    assert len(queries) == 1


@pytest.mark.takes_time
def test_tasks_that_are_advanced_after_each_other_have_times_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds take seconds: what the last one requests was not requested when all began."""
    seconds = iter(range(0, 100, 7))
    monkeypatch.setattr(clock, "seconds_counted", lambda: float(next(seconds)))
    monkeypatch.setattr(polling, "_pace", SimpleNamespace(tasks=2, took=lambda *_: None))
    asked_at: list[datetime] = []

    def together(task_ids: list[UUID], *, now: datetime, actor: str) -> set[UUID]:
        asked_at.append(now)
        return set(task_ids)

    monkeypatch.setattr(polling, "_advance_together", together)
    engine.advance_all([uuid4() for _ in range(6)], now=NOW, actor="executor")
    assert asked_at == [NOW + timedelta(seconds=number) for number in (7, 14, 21)]


def chains(number: int, *, name: str = "tidy") -> list[Play]:
    """Tasks of four steps, of which the third sees the result of the first, whose execution has
    ended."""
    plays = [
        Play(
            step("first"),
            step("skipped", "first", when=False),
            step("sees", "skipped", parameters={"was": "{{ steps.first.result.number }}"}),
            step("last", "sees"),
            name=name,
            version=f"{n}.0.0",
        )
        for n in range(number)
    ]
    for n, play in enumerate(plays):
        play.end("first", result={"number": n}, advance=False)
    return plays


def advance_together(plays: list[Play]) -> CaptureQueriesContext:
    """All in one transaction."""
    ids = [play.id for play in plays]
    with CaptureQueriesContext(connection) as queries:
        assert advance_free(ids, now=NOW, actor="executor") == set(ids)
    return queries


def test_number_of_queries_does_not_grow_with_the_tasks() -> None:
    few, many = chains(2, name="few"), chains(20, name="many")
    forget_actions()
    number = len(advance_together(few))
    forget_actions()
    assert len(advance_together(many)) == number


def test_tasks_that_are_advanced_together_see_only_their_own() -> None:
    plays = chains(3)
    advance_together(plays)
    for number, play in enumerate(plays):
        assert play.parameters("sees") == {"was": number}
        assert play.states["skipped"] == "complete"
        assert play.running() == {"sees"}
    plays[0].fail("sees", advance=False)
    plays[1].end("sees", advance=False)
    advance_together(plays)
    assert [play.running() for play in plays] == [set(), {"last"}, {"sees"}]
    assert [play.state for play in plays] == [
        "waiting_for_retry", "steps_in_process", "steps_in_process",
    ]  # fmt: skip
    alone = chains(1, name="alone")[0]
    alone.advance()
    alone.end("sees")
    assert alone.events() == plays[1].events()


def test_pace_doubles_while_it_is_fast_and_halves_when_it_is_slow() -> None:
    pace = polling.Pace()
    sizes = [pace.tasks]
    for tasks, seconds in [(1, 0.01), (1, 0.01), (2, 0.01), (4, 0.01), (8, 0.3), (4, 0.3)]:
        pace.took(tasks, seconds)
        sizes.append(pace.tasks)
    assert sizes == [1, 2, 2, 4, 8, 4, 2]
    for _ in range(10):
        pace.took(pace.tasks, 0.01)
    assert pace.tasks == polling.Pace.MOST
    pace.took(1, 60.0)
    assert pace.tasks == 1


@pytest.mark.parametrize("state", WAYS)
def test_ways_are_possible_and_lead_where_they_say(state: TaskState) -> None:
    for goal, events in WAYS[state].items():
        rules = TASKS.way(*events)
        assert state in rules[0].sources, (state, goal)
        assert rules[-1].target is goal, (state, goal)


def test_there_is_a_way_between_any_two_states_that_a_task_may_be_in() -> None:
    begin = set(TaskState) - TASKS.terminal - {TaskState.PENDING}
    passing = {TaskState.INITIALIZING, TaskState.ENQUEUING_STEPS, TaskState.EVALUATING_RESULTS}
    goals = (begin - passing) | {TaskState.COMPLETE}
    assert set(WAYS) == (begin - passing) | {TaskState.INITIALIZING}
    assert {frozenset(ways) for ways in WAYS.values()} == {frozenset(goals)}
