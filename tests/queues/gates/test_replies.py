"""What a sender gets: answers with all five statuses, copies, retries, reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.reasons import Reason
from orchestrator.core.states import TERMINAL
from orchestrator.queues.gates import headers, replies, shape
from orchestrator.queues.gates.replies import Kind, Reply
from tests.queues.gates import messages

ID = UUID("01890000-0000-7000-8000-000000000001")
LIMIT = 3


@dataclass
class Terms:
    input_queue: str = "orders"
    retry_queue: str = "orders.retry"
    rejected_queue: str = "orders.rejected"
    output_queue: str = "orders.out"
    paused_queue: str = ""
    retry_by: str = "muster"
    max_priority: int = 0
    classifiers: Mapping[str, Any] = field(default_factory=dict)
    codec: str = "json"
    reply_to: bool = False
    allow_loop: bool = False
    answer_inactive: bool = False
    service_name: str = "billing"
    service_version: str = "1.2"

    @property
    def retries_go_to(self) -> str:
        return self.retry_queue or self.input_queue


def came(
    body: bytes | None = None,
    *,
    found: dict[str, Any] | None = None,
    refusal: dict[str, Any] | None = None,
    job_status: str = "",
    **properties: Any,
) -> Any:
    body = messages.body() if body is None else body
    reading = shape.read(body, found or {}, properties, most_bytes=100_000)
    return SimpleNamespace(
        pk=7,
        task_id=reading.task_id,
        tries=reading.tries,
        body=body,
        headers=found or {},
        properties=properties,
        envelope=reading.envelope,
        refusal=refusal,
        job_status=job_status,
    )


def ended(status: str = "completed", reason: str = Reason.SUCCEEDED, **values: Any) -> Any:
    known = {"attempt": 1, "retry_count": 0, "cancel_reason": "", "result": {"sum": 3}}
    return SimpleNamespace(id=ID, status=status, reason=reason, **known | values)


LOST = ended("abandoned", Reason.WORKER_LOST)
INVALID = {"rejected": headers.INVALID, "problems": [{"pointer": "/to", "text": "is odd"}]}
EXCEEDED = {"rejected": headers.EXCEEDED, "problems": [{"pointer": "", "text": "4 starts"}]}


def owed(ticket: Any, execution: Any, gate: Terms | None = None) -> list[Reply]:
    return replies.replies_of(ticket, execution, gate=gate or Terms(), retry_limit=LIMIT)


def answer(ticket: Any, execution: Any, gate: Terms | None = None) -> dict[str, Any]:
    first = owed(ticket, execution, gate)[0]
    assert first.kind == Kind.ANSWER
    written: dict[str, Any] = json.loads(first.body)
    return written | {"data": messages.decoded(written["taskData"])}


@pytest.mark.parametrize(
    ("execution", "refusal", "status", "data"),
    [
        (ended(), None, "RESULT_SUCCESS", {"sum": 3}),
        (
            ended("failed", Reason.ACTION_FAILED, result={"message": "no stock"}),
            None,
            "RESULT_FAILURE",
            {"error": "action_failed", "message": "no stock"},
        ),
        (
            ended("failed", Reason.MEMORY_LIMIT_EXCEEDED, result={}),
            None,
            "RESULT_EXCEPTION",
            {
                "error": "memory_limit_exceeded",
                "message": "The action used more memory than it may",
            },
        ),
        (
            ended("timeout", Reason.RUN_TIMEOUT, result=None),
            None,
            "RESULT_EXCEPTION",
            {"error": "run_timeout", "message": "The action ran longer than its time limit"},
        ),
        (
            LOST,
            None,
            "RESULT_EXCEPTION",
            {"error": "worker_lost", "message": "The worker was lost while it ran the action"},
        ),
        (
            ended("cancelled", Reason.CANCELLED, cancel_reason="by hand", result=None),
            None,
            "RESULT_FAILURE",
            {"error": "cancelled", "message": "by hand"},
        ),
        (
            None,
            INVALID,
            "INVALID_TASK",
            {
                "error": headers.INVALID,
                "message": "/to: is odd",
                "problems": INVALID["problems"],
            },
        ),
        (
            None,
            EXCEEDED,
            "RESULT_EXCEPTION",
            {
                "error": headers.EXCEEDED,
                "message": "4 starts",
                "problems": EXCEEDED["problems"],
            },
        ),
    ],
)
def test_each_end_has_its_status_and_data(
    execution: Any, refusal: Any, status: str, data: dict[str, Any]
) -> None:
    written = answer(came(refusal=refusal), execution)
    if status == "RESULT_EXCEPTION" and execution is LOST:
        data = data | {"message": written["data"]["message"]}
    assert (written["taskStatus"], written["data"]) == (status, data)


def test_answer_carries_what_the_message_had() -> None:
    body = messages.body(
        "doc-7", context={"svc": "AQI="}, correlationId="c-1", priority=4, version=2
    )
    ticket = came(body, found={"x-tenant": "a", "plain": "b"}, correlation_id="rpc-1", priority=9)
    [reply] = owed(ticket, ended(), Terms(max_priority=5))
    written = json.loads(reply.body)
    assert written["taskId"] == "doc-7"
    assert written["context"] == {"svc": "AQI="}
    assert (written["correlationId"], written["priority"], written["version"]) == ("c-1", 4, 2)
    assert written["to"] == reply.queue == "orders.out"
    assert written["sourceInfo"] == {"name": "billing", "version": "1.2"}
    assert reply.headers == {
        "x-tenant": "a",
        headers.EXECUTION: str(ID),
        headers.ATTEMPT: 1,
        headers.REASON: "succeeded",
    }
    assert reply.properties == {
        "content_type": "application/json",
        "message_id": f"{ID}.answer",
        "correlation_id": "rpc-1",
        "priority": 5,
    }


def test_answer_has_the_classifier_of_answers() -> None:
    gate = Terms(classifiers={"Echo": {"answer": "EchoResult"}})
    assert answer(came(), ended(), gate)["taskClassifier"] == "EchoResult"
    assert answer(came(), ended())["taskClassifier"] == "Echo"


def test_gate_without_an_output_queue_answers_nothing() -> None:
    assert owed(came(), ended(), Terms(output_queue="")) == []


def test_answer_goes_to_the_queue_that_the_message_names_only_where_that_is_allowed() -> None:
    ticket = came(reply_to="amq.gen-1")
    assert owed(ticket, ended())[0].queue == "orders.out"
    assert owed(ticket, ended(), Terms(reply_to=True))[0].queue == "amq.gen-1"
    assert owed(came(), ended(), Terms(reply_to=True))[0].queue == "orders.out"


def test_answer_does_not_go_to_the_queue_that_the_gate_reads() -> None:
    ticket = came(reply_to="orders")
    assert owed(ticket, ended(), Terms(reply_to=True))[0].queue == "orders.out"


def test_refused_message_is_copied_to_the_rejected_queue() -> None:
    body = b"garbage"
    copy = owed(came(body, found={"mine": 1}, refusal=INVALID, expiration="100"), None)[1]
    assert (copy.kind, copy.queue, copy.body) == (Kind.REJECTED, "orders.rejected", body)
    assert copy.headers == {"mine": 1, headers.REJECTED: headers.INVALID}
    assert "expiration" not in copy.properties


def test_lost_execution_is_copied_to_the_rejected_queue_with_its_count() -> None:
    ticket = came(found={headers.RETRY: "1"})
    copy = owed(ticket, ended("abandoned", Reason.PROCESS_LOST, retry_count=3, attempt=3))[1]
    assert copy.headers[headers.REJECTED] == headers.EXCEEDED
    assert (copy.headers[headers.RETRY], copy.headers[headers.RETRY_LIMIT]) == (4, LIMIT)
    assert copy.headers[headers.EXECUTION] == str(ID)


def test_gate_without_a_rejected_queue_copies_nothing() -> None:
    assert len(owed(came(refusal=INVALID), None, Terms(rejected_queue=""))) == 1


def test_count_is_on_the_answer_only_if_a_start_was_lost() -> None:
    assert headers.RETRY not in owed(came(), ended())[0].headers
    counted = owed(came(), ended(retry_count=2))[0].headers
    assert (counted[headers.RETRY], counted[headers.RETRY_LIMIT]) == (2, LIMIT)


BY_QUEUE = Terms(retry_by="queue")


def test_lost_attempt_goes_back_through_the_retry_queue_with_all_it_had() -> None:
    found = {"mine": "x", headers.RETRY: "1", headers.DELIVERY_COUNT: 2}
    ticket = came(found=found, priority=7, message_id="m", user_id="me")
    [reply] = owed(ticket, ended("abandoned", Reason.WORKER_LOST, retry_count=1), BY_QUEUE)
    assert (reply.kind, reply.queue, reply.body) == (Kind.RETRY, "orders.retry", ticket.body)
    assert reply.headers == {"mine": "x", headers.RETRY: 2, headers.RETRY_LIMIT: LIMIT}
    assert reply.properties == {"priority": 7, "message_id": "m"}
    assert reply.moves


def test_lost_attempt_beyond_the_limit_is_answered() -> None:
    ticket = came(found={headers.RETRY: LIMIT})
    first, copy = owed(ticket, ended("abandoned", Reason.WORKER_LOST, retry_count=LIMIT), BY_QUEUE)
    assert json.loads(first.body)["taskStatus"] == "RESULT_EXCEPTION"
    assert copy.headers[headers.REJECTED] == headers.EXCEEDED
    assert copy.headers[headers.RETRY] == LIMIT + 1


def test_retry_queue_that_is_not_set_is_the_input_queue() -> None:
    gate = Terms(retry_by="queue", retry_queue="")
    assert owed(came(), LOST, gate)[0].queue == "orders"


def test_task_of_an_inactive_job_is_answered_only_if_asked_for() -> None:
    ticket, cancelled = came(job_status="inactive"), ended("cancelled", Reason.CANCELLED)
    assert owed(ticket, cancelled) == []
    assert answer(ticket, cancelled, Terms(answer_inactive=True))["taskStatus"] == "RESULT_FAILURE"


def test_task_of_a_paused_job_moves_to_the_paused_queue() -> None:
    ticket, cancelled = came(job_status="paused"), ended("cancelled", Reason.CANCELLED)
    [reply] = owed(ticket, cancelled, Terms(paused_queue="orders.paused"))
    assert (reply.queue, reply.body, reply.moves) == ("orders.paused", ticket.body, True)


def tracked(**changed: Any) -> bytes:
    return messages.body(
        tracking={"jobTaskId": "J1.2", "trackingPipe": "jobs", "trackTo": "orders.out", **changed}
    )


def report(ticket: Any, execution: Any, gate: Terms | None = None) -> dict[str, Any]:
    [reported] = reports(ticket, execution, gate)
    return reported


def reports(ticket: Any, execution: Any, gate: Terms | None = None) -> list[dict[str, Any]]:
    [reply] = [each for each in owed(ticket, execution, gate) if each.kind == Kind.REPORT]
    written = json.loads(reply.body)
    assert (reply.queue, written["to"], written["taskClassifier"]) == (
        "jobs",
        "jobs",
        "TrackingReportTask",
    )
    return list(messages.decoded(written["taskData"])["trackingReports"])


def test_job_is_told_that_its_task_is_complete_where_tracking_ends() -> None:
    assert report(came(tracked()), ended()) == {"jobTaskId": "J1.2", "status": "Complete"}
    assert answer(came(tracked()), ended())["tracking"] is None


def test_job_is_told_of_progress_where_tracking_goes_on() -> None:
    ticket = came(tracked(trackTo="elsewhere"))
    assert report(ticket, ended())["status"] == "Progress"
    assert answer(ticket, ended())["tracking"]["trackTo"] == "elsewhere"


def test_job_is_told_of_failures_and_refusals() -> None:
    failed = report(came(tracked()), LOST)
    assert (failed["status"], failed["failure"]["failureId"]) == ("Failed", "worker_lost")
    refused = report(came(tracked(), refusal=INVALID), None)
    assert refused["failure"]["failureMessage"] == "/to: is odd"


def test_job_is_told_of_retries() -> None:
    retried = report(came(tracked()), LOST, BY_QUEUE)
    assert retried == {"jobTaskId": "J1.2", "status": "Retry", "retries": 1}


def test_job_is_told_of_the_attempts_that_were_lost_before_the_last() -> None:
    ticket = came(tracked(), found={headers.RETRY: "1"})
    assert reports(ticket, ended(retry_count=3)) == [
        {"jobTaskId": "J1.2", "status": "Retry", "retries": 2},
        {"jobTaskId": "J1.2", "status": "Retry", "retries": 3},
        {"jobTaskId": "J1.2", "status": "Complete"},
    ]


def test_message_to_a_job_has_five_reports_at_most_and_how_it_ended() -> None:
    told = reports(came(tracked()), ended(retry_count=9))
    assert [each.get("retries") for each in told] == [6, 7, 8, 9, None]
    assert told[-1]["status"] == "Complete"


def test_reports_to_our_own_queue_would_be_a_loop() -> None:
    assert len(owed(came(tracked(trackingPipe="ORDERS")), ended())) == 1


def test_codecs_write_text_and_bytes_as_they_are() -> None:
    written = json.loads(owed(came(), ended(result={"text": "grün"}), Terms(codec="text"))[0].body)
    assert messages.raw(written["taskData"]) == "grün".encode()
    raw = ended(result={"task_data": messages.encoded(b"\0\xff")})
    written = json.loads(owed(came(), raw, Terms(codec="raw"))[0].body)
    assert messages.raw(written["taskData"]) == b"\0\xff"


@given(
    body=st.binary() | st.just(messages.body()),
    status=st.sampled_from(sorted(TERMINAL)),
    reason=st.sampled_from(sorted(Reason)) | st.just("of_a_later_release"),
    refusal=st.sampled_from([None, INVALID, EXCEEDED]),
    result=st.none() | st.dictionaries(st.text(), st.integers() | st.text()),
    codec=st.sampled_from(["json", "text", "raw"]),
    retry_by=st.sampled_from(["muster", "queue"]),
    found=st.dictionaries(st.text(), st.integers() | st.text()),
)
def test_every_end_is_answered_and_a_second_telling_is_the_same(
    body: bytes, status: str, reason: str, refusal: Any, result: Any, codec: str, retry_by: str,
    found: dict[str, Any],
) -> None:  # fmt: skip
    ticket = came(body, found=found, refusal=refusal)
    execution = None if refusal else ended(status, reason, result=result)
    gate = replace(Terms(), codec=codec, retry_by=retry_by)
    first, *_ = told = owed(ticket, execution, gate)
    assert first.kind in (Kind.ANSWER, Kind.RETRY)
    assert owed(ticket, execution, gate) == told
    if first.kind == Kind.ANSWER:
        assert json.loads(first.body)["taskId"] == ticket.task_id
