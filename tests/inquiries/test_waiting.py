"""`core.ask`: no worker runs it, its inquiry holds it up, and one end brings about the other."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import clock, executions, fleet
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.inquiries import answering, asking, questions, resuming, retention, waiting
from orchestrator.inquiries.models import Inquiry, InquiryWait
from tests.factories import NOW, make_execution, make_worker, seconds
from tests.inquiries.play import ACTOR, YES, YES_OR_NO, ask_action, held, person, request
from tests.races import at_once

pytestmark = pytest.mark.usefixtures("database")


ANSWERED_AT = NOW + seconds(5)
LOOKED_AT = NOW + seconds(6)


def answer(inquiry: Inquiry) -> None:
    answering.respond(inquiry.pk, YES, by=person(), now=ANSWERED_AT)


def look(now: datetime = LOOKED_AT) -> int:
    return resuming.look(now=now, actor=ACTOR)


def message_of(execution: Execution) -> str:
    assert execution.result is not None
    return str(execution.result["message"])


def test_execution_waits_without_a_worker_and_completes_with_the_answer() -> None:
    execution, inquiry = held()
    assert (execution.status, execution.attempt, execution.worker) == ("scheduling", 0, None)
    assert execution.wait_reason == f"an answer to inquiry {inquiry.pk}"
    answer(inquiry)
    assert resuming.resume([inquiry.pk], now=NOW + seconds(5), actor=ACTOR) == 1
    execution.refresh_from_db()
    assert (execution.status, execution.reason, execution.result) == ("completed", "answered", YES)
    events = ExecutionEvent.objects.of(execution.pk).values_list("event", flat=True)
    assert list(events) == ["wait", "answer"]


def test_answer_without_any_message_is_found_by_looking() -> None:
    execution, inquiry = held()
    answer(inquiry)
    look()
    execution.refresh_from_db()
    assert execution.status == "completed"
    assert not resuming.any_open()


def test_request_whose_message_was_lost_is_asked_by_looking() -> None:
    execution = request()
    look(now=NOW)  # it is young: whoever has the message does it
    assert not Inquiry.objects.exists()
    look(now=NOW + seconds(2))
    execution.refresh_from_db()
    assert execution.status == "scheduling"
    assert Inquiry.objects.get().asked_by_execution_id == execution.pk


def test_executors_ask_once_however_many_take_the_same_message() -> None:
    execution = request()
    take = partial(waiting.take, [execution], now=NOW, actor=ACTOR)
    at_once(*[take] * 8)
    assert Inquiry.objects.count() == InquiryWait.objects.count() == 1
    assert ExecutionEvent.objects.of(execution.pk).count() == 1


def test_scheduler_gives_it_to_no_worker_even_if_there_are_some() -> None:
    worker = make_worker()
    execution, other = request(), make_execution()
    placement = fleet.Placement()
    ids = [execution.pk, other.pk]
    executions.schedule(ids, placement=placement, now=NOW, actor=ACTOR)
    executions.schedule_backlog(placement=placement, now=NOW, actor=ACTOR, limit=10)
    execution.refresh_from_db()
    other.refresh_from_db()
    assert (execution.status, execution.worker) == ("scheduling", None)
    assert (other.attempt, other.worker) == (1, worker)


def test_backlog_does_not_reject_what_no_worker_can_run() -> None:
    execution = request()
    executions.schedule_backlog(placement=fleet.Placement(), now=NOW, actor=ACTOR, limit=10)
    execution.refresh_from_db()
    assert execution.status == "requested"


def test_deadline_is_a_minute_after_the_time_for_an_answer() -> None:
    execution, inquiry = held(ttl_seconds=3600)
    assert execution.deadline_at == NOW + seconds(3660)
    assert inquiry.expires_at == NOW + seconds(3600)


def test_time_for_an_answer_is_cut_to_a_given_deadline() -> None:
    ask_action()
    new = NewExecution(
        action_ref="core.ask",
        parameters={"prompt": "Go?", "ttl_seconds": 3600},
        deadline_seconds=100,
    )
    execution = executions.request(new, requested_by="grace", now=NOW)
    waiting.take([execution], now=NOW, actor=ACTOR)
    assert Inquiry.objects.get().expires_at == NOW + seconds(90)
    execution.refresh_from_db()
    assert execution.deadline_at == NOW + seconds(100)


def test_timeout_fails_the_execution_with_its_reason() -> None:
    execution, inquiry = held(ttl_seconds=60)
    resuming.expire_inquiries(now=NOW + seconds(60))
    look(now=NOW + seconds(61))
    execution.refresh_from_db()
    assert (execution.status, execution.reason) == ("failed", "inquiry_timed_out")
    assert str(inquiry.pk) in message_of(execution)


def test_timeout_completes_with_the_default_if_the_question_says_so() -> None:
    no = {"approved": False}
    execution, _ = held(ttl_seconds=60, on_timeout="complete", default=no)
    resuming.expire_inquiries(now=NOW + seconds(60))
    look(now=NOW + seconds(61))
    execution.refresh_from_db()
    assert (execution.status, execution.result) == ("completed", no)


def test_cancel_of_the_inquiry_fails_the_execution() -> None:
    execution, inquiry = held()
    answering.cancel(inquiry.pk, by=person(), now=NOW, reason="no need")
    look()
    execution.refresh_from_db()
    assert (execution.status, execution.reason) == ("failed", "inquiry_cancelled")
    assert "no need" in message_of(execution)


def test_cancel_of_the_execution_cancels_the_inquiry() -> None:
    execution, inquiry = held()
    executions.cancel(execution_id=execution.pk, actor="ada", now=NOW)
    resuming.note_ended([execution.pk], now=NOW, actor=ACTOR)
    inquiry.refresh_from_db()
    assert inquiry.state == "cancelled"
    assert not resuming.any_open()


def test_deadline_is_kept_although_nobody_expires_the_inquiry() -> None:
    execution, inquiry = held(ttl_seconds=60)
    late = NOW + seconds(121)
    assert executions.sweep(now=late)["deadline_passed"] == 1
    look(now=late)
    execution.refresh_from_db()
    inquiry.refresh_from_db()
    assert (execution.status, execution.reason) == ("failed", "deadline_passed")
    assert inquiry.state == "cancelled"


def test_question_that_cannot_be_asked_fails_the_execution_with_all_problems() -> None:
    execution = request(prompt="", assignees=["ada"])
    assert waiting.take([execution], now=NOW, actor=ACTOR) == 0
    execution.refresh_from_db()
    assert (execution.status, execution.reason) == ("failed", "inquiry_refused")
    assert "/prompt" in message_of(execution)
    assert "/assignees/0" in message_of(execution)


def test_request_for_a_worker_or_a_queue_is_refused() -> None:
    ask_action()
    worker = make_worker()
    new = NewExecution(action_ref="core.ask", parameters={"prompt": "Go?"}, worker_id=worker.pk)
    with pytest.raises(RequestRefused, match=r"no worker runs core\.ask"):
        executions.request(new, requested_by="grace", now=NOW)


# --- what an action has asked --------------------------------------------------------------------


def asked_by(execution: Execution, purpose: str = "sign-off") -> Inquiry:
    question = questions.read({"prompt": "Go?", "schema": YES_OR_NO})
    by = asking.by_execution(execution, purpose=purpose)
    return asking.ask(question, asked=by, now=NOW)


def test_retried_action_finds_its_own_question() -> None:
    execution = make_execution("running")
    rows = at_once(*[partial(asked_by, execution)] * 8)
    assert {row.pk for row in rows} == {Inquiry.objects.get().pk}
    assert asked_by(execution, "another").pk != rows[0].pk


def test_execution_cannot_ask_something_else_for_the_same_purpose() -> None:
    execution = make_execution("running")
    asked_by(execution)
    by = asking.by_execution(execution, purpose="sign-off")
    with pytest.raises(asking.PurposeTaken):
        asking.ask(questions.read({"prompt": "Stop?"}), asked=by, now=NOW)


def test_execution_of_the_same_tree_waits_for_what_another_has_asked() -> None:
    asking_one = make_execution("running", correlation_id="t1")
    inquiry = asked_by(asking_one)
    ask_action()
    new = NewExecution(
        action_ref="core.ask", parameters={"wait_for": str(inquiry.pk)}, correlation_id="t1"
    )
    execution = executions.request(new, requested_by="grace", now=NOW)
    assert waiting.take([execution], now=NOW, actor=ACTOR) == 1
    answer(inquiry)
    look()
    execution.refresh_from_db()
    assert execution.result == YES


def test_execution_of_another_tree_cannot_wait_for_it() -> None:
    inquiry = asked_by(make_execution("running", correlation_id="t1"))
    execution = request(wait_for=str(inquiry.pk))
    assert waiting.take([execution], now=NOW, actor=ACTOR) == 0
    execution.refresh_from_db()
    assert execution.reason == "inquiry_refused"
    inquiry.refresh_from_db()
    assert inquiry.is_open


def waiter_of(inquiry: Inquiry, tree: str) -> Execution:
    ask_action()
    new = NewExecution(
        action_ref="core.ask", parameters={"wait_for": str(inquiry.pk)}, correlation_id=tree
    )
    execution = executions.request(new, requested_by="grace", now=NOW)
    assert waiting.take([execution], now=NOW, actor=ACTOR) == 1
    return execution


def test_end_of_a_waiter_leaves_the_question_of_another_execution() -> None:
    inquiry = asked_by(make_execution("running", correlation_id="t1"))
    execution = waiter_of(inquiry, "t1")
    executions.cancel(execution_id=execution.pk, actor="ann", now=NOW)
    assert look() == 1
    inquiry.refresh_from_db()
    assert inquiry.is_open
    assert not InquiryWait.objects.open().exists()


def test_inquiry_is_kept_as_long_as_an_execution_that_waited_for_it() -> None:
    asking_one = make_execution("running", correlation_id="t1")
    inquiry = asked_by(asking_one)
    execution = waiter_of(inquiry, "t1")
    answer(inquiry)
    look()
    Execution.objects.filter(pk=asking_one.pk).delete()
    later = clock.now() + seconds(86_400)
    assert not retention.old_inquiries(later).exists(), "it knows what is secret in the result"
    InquiryWait.objects.filter(pk=execution.pk).update(execution=uuid4())  # it is gone
    assert retention.old_inquiries(later).get() == inquiry


def test_many_timeouts_at_once_cost_no_more_statements_than_a_few() -> None:
    def statements(number: int) -> int:
        for _ in range(number):
            held(ttl_seconds=60)
        resuming.expire_inquiries(now=NOW + seconds(60))
        with CaptureQueriesContext(connection) as queries:
            assert look(NOW + seconds(61)) == number
        return len(queries)

    few = statements(2)
    assert statements(12) == few
    messages = {row.pk: message_of(row) for row in Execution.objects.all()}
    for wait in InquiryWait.objects.all():
        assert str(wait.inquiry_id) in messages[wait.pk], "each says which inquiry"


def test_inquiry_that_has_ended_before_somebody_waits_lets_them_go_on() -> None:
    inquiry = asked_by(make_execution("running", correlation_id="t1"))
    answer(inquiry)
    ask_action()
    new = NewExecution(
        action_ref="core.ask", parameters={"wait_for": str(inquiry.pk)}, correlation_id="t1"
    )
    execution = executions.request(new, requested_by="grace", now=NOW + seconds(6))
    waiting.take([execution], now=NOW + seconds(6), actor=ACTOR)
    look(now=NOW + seconds(7))
    execution.refresh_from_db()
    assert execution.status == "completed"
