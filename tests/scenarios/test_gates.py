"""Foreign AMQP clients and gates: what is published to an input queue is answered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scenarios import doors, foreign
from tests.scenarios.doors import BROKERS, CLASSIFIERS, Door, Doors
from tests.scenarios.foreign import task_message


@pytest.fixture(scope="module", params=BROKERS)
def opened(request: pytest.FixtureRequest) -> Iterator[Doors]:
    """An installation with gates: embedded, on classic queues, on quorum queues."""
    name = "embedded" if request.param == "embedded" else "servers"
    with doors.installed(request.getfixturevalue(f"{name}_backend"), request.param) as opened:
        yield opened


@pytest.fixture
def door(opened: Doors) -> Iterator[Door]:
    door = opened.make()
    yield door
    door.close()


def empty(door: Door, *queues: str) -> None:
    foreign.wait_until(
        lambda: all(door.client.depth(queue) == 0 for queue in queues), f"{queues} are not empty"
    )


def test_task_message_is_answered(door: Door) -> None:
    door.make()
    door.send("t1", {"text": "hello"}, context={"svc": "AQI="}, correlationId="c-1")

    answer = door.client.wait(door.output)

    assert answer.told == ("t1", "RESULT_SUCCESS")
    assert answer.data == {"text": "hello"}
    assert answer.task["context"] == {"svc": "AQI="}
    assert answer.headers["x-muster-reason"] == "succeeded"
    empty(door, door.input)


def test_two_hundred_messages_have_two_hundred_answers(door: Door) -> None:
    door.make(queue={"prefetch_buffer": 50})
    for number in range(200):
        door.send(f"t{number}", {"text": str(number)}, context={"n": foreign.encoded(number)})

    answers = door.client.collect(door.output, 200)

    assert {answer.told for answer in answers} == {
        (f"t{number}", "RESULT_SUCCESS") for number in range(200)
    }
    assert all(
        answer.data == {"text": answer.task["taskId"][1:]}
        and foreign.decoded(answer.task["context"]["n"]) == int(answer.task["taskId"][1:])
        for answer in answers
    )
    empty(door, door.input, door.output)


def test_delivery_is_unacknowledged_until_its_answer_is_confirmed(door: Door) -> None:
    label = f"held {door.name}"
    door.make()
    gate = door.installation.directory / f"gate of {label}"
    door.send("t1", door.note(label, gate=str(gate)), "Note")
    door.installation.wait_for_start(label)
    # while it runs the broker has it: closing the connection would bring it again
    foreign.wait_until(lambda: door.unacknowledged() == 1, "not unacknowledged")

    door.installation.open_gate(label)

    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")
    foreign.wait_until(lambda: door.unacknowledged() == 0, "still unacknowledged")


@pytest.mark.slow
def test_row_answers_for_a_message_where_the_gate_says_so(door: Door) -> None:
    label = f"row {door.name}"
    door.make(custody="row")
    gate = door.installation.directory / f"gate of {label}"
    door.send("t1", door.note(label, gate=str(gate)), "Note")
    door.installation.wait_for_start(label)
    foreign.wait_until(lambda: door.unacknowledged() == 0, "still unacknowledged")

    door.installation.open_gate(label)

    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")


def test_same_bytes_twice_run_once_and_are_answered_twice(door: Door) -> None:
    label = f"twice {door.name}"
    door.make()
    for _ in range(2):
        door.send("t1", door.note(label), "Note")
    answers = door.client.collect(door.output, 2)
    assert answers[0].properties["message_id"] == answers[1].properties["message_id"]
    assert len(door.installation.journal.starts(label)) == 1
    # the same task with other data is another one
    door.send("t1", door.note(f"{label}, again"), "Note")
    assert door.client.wait(door.output).data["label"] == f"{label}, again"
    empty(door, door.input, door.output)


def test_two_hundred_garbage_bodies_are_answered_once_and_never_loop(door: Door) -> None:
    """The retry queue is the input queue, which is the default."""
    door.make()
    bodies = list(itertools.islice(garbage(), 200))
    for body in bodies:
        door.client.publish(door.input, body)

    answers = door.client.collect(door.output, len(bodies))
    copies = door.client.collect(door.rejected, len(bodies))

    assert {answer.task["taskStatus"] for answer in answers} == {"INVALID_TASK"}
    assert sorted(copy.body for copy in copies) == sorted(bodies)
    assert {copy.headers["x-caf-worker-rejected"] for copy in copies} == {"TASKMESSAGE_INVALID"}
    empty(door, door.input, door.output, door.rejected)


def garbage() -> Iterator[bytes]:
    kinds: list[Any] = [b"", b"\xff\x00", b"[]", b"null", b"{", b'{"taskId": 7}', b"[" * 5_000]
    for number in itertools.count():
        yield kinds[number % len(kinds)] if number < 7 else f'{{"n": {number}}}'.encode()


def test_message_that_was_rejected_before_goes_to_the_rejected_queue_once(door: Door) -> None:
    door.make()
    found = {"x-caf-worker-rejected": "TASKMESSAGE_INVALID", "mine": "x"}
    door.client.publish(door.input, task_message("t1", {"text": "x"}), found)

    kept = door.client.wait(door.rejected)

    assert {name: kept.headers[name] for name in found} == found
    door.send("t2", {"text": "x"})
    assert door.client.wait(door.output).told == ("t2", "RESULT_SUCCESS")
    empty(door, door.input, door.output, door.rejected)


def test_message_to_another_queue_is_forwarded_with_all_that_it_had(door: Door) -> None:
    door.make(divert="forward", forward_to=["bills.*"])
    bills, nowhere = f"bills.{door.name}", "bills.nowhere"
    door.client.declare(bills, door.kind)
    body = task_message("t1", {"text": "x"}, to=bills)
    door.client.publish(door.input, body, {"x-mine": 1}, priority=7, correlation_id="rpc")

    passed_on = door.client.wait(bills)

    assert passed_on.body == body
    assert passed_on.headers["x-mine"] == 1
    assert (passed_on.properties["priority"], passed_on.properties["correlation_id"]) == (7, "rpc")
    for to in (nowhere, "muster.anything"):
        door.send("t2", {"text": "x"}, to=to)
        refused = door.client.wait(door.output)
        assert refused.task["taskStatus"] == "INVALID_TASK"
        assert refused.data["problems"][0]["pointer"] == "/to"
    for own in (None, door.input.upper()):
        door.send("t3", {"text": str(own)}, to=own)
        assert door.client.wait(door.output).told == ("t3", "RESULT_SUCCESS")


def test_redelivered_message_reaches_the_retry_queue_with_a_count_and_all_it_had(
    door: Door,
) -> None:
    """Another consumer takes it, and dies of it."""
    door.make(retry_queue=door.retry, consumes_retry=False)
    foreign.wait_until(lambda: door.consumers(door.input) > 0, "not consumed")
    door.make(queue={"accepts": False}, retry_queue=door.retry, consumes_retry=False)
    foreign.wait_until(lambda: door.consumers(door.input) == 0, "still consumed")
    body = task_message("t1", {"text": "x"})
    door.client.publish(door.input, body, {"x-mine": "a"}, priority=3, message_id="m-1")
    door.take_and_die(door.input)
    door.make(queue={"accepts": True}, retry_queue=door.retry, consumes_retry=False)

    counted = door.client.wait(door.retry)

    assert counted.body == body
    assert counted.headers["x-mine"] == "a"
    assert (counted.headers["x-caf-worker-retry"], counted.headers["x-caf-worker-retry-limit"]) == (
        1,
        10,
    )
    assert (counted.properties["priority"], counted.properties["message_id"]) == (3, "m-1")
    # back again, with the count: it runs
    door.client.publish(door.input, body, counted.headers)
    answer = door.client.wait(door.output)
    assert answer.told == ("t1", "RESULT_SUCCESS")
    assert answer.headers["x-caf-worker-retry"] == 1


def test_message_beyond_the_limit_is_rejected_and_a_changed_limit_applies_at_once(
    door: Door,
) -> None:
    door.make(queue={"retry_limit": 2})
    body = task_message("t1", {"text": "x"})
    found = {"x-caf-worker-retry": "5", "x-caf-worker-retry-limit": "10"}
    door.client.publish(door.input, body, found)
    refused, copy = door.client.wait(door.output), door.client.wait(door.rejected)
    assert refused.told == ("t1", "RESULT_EXCEPTION")
    assert refused.data["error"] == "RETRIES_EXCEEDED"
    assert copy.headers["x-caf-worker-rejected"] == "RETRIES_EXCEEDED"
    assert (copy.headers["x-caf-worker-retry"], copy.headers["x-caf-worker-retry-limit"]) == (5, 2)

    door.make(queue={"retry_limit": 10})
    door.wait_for_limit(10)
    door.client.publish(door.input, body, found)
    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")


@pytest.mark.slow
def test_deleted_output_queue_leaves_tickets_untold_with_the_reason(door: Door) -> None:
    door.make()
    # who begins to consume declares all queues of the gate
    foreign.wait_until(lambda: door.consumers(door.input) > 0, "not consumed")
    door.client.delete(door.output)
    door.send("t1", {"text": "x"})

    def untold() -> Any:
        found = [row for row in door.tickets() if row.gate_id == door.id and row.last_error]
        return found[0] if found else None

    ticket = foreign.wait_until(untold, "nothing is untold")
    assert "no queue for it" in ticket.last_error
    assert ticket.told_at is None
    foreign.wait_until(lambda: door.unacknowledged() == 1, "not unacknowledged")

    door.client.declare(door.output, door.kind)

    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")
    foreign.wait_until(lambda: door.unacknowledged() == 0, "still unacknowledged")


def test_failures_have_their_statuses(door: Door) -> None:
    door.make(classifiers=CLASSIFIERS | {"Fail": {"action": "core.fail"}})
    door.send("t1", {"message": "no stock"}, "Fail")
    failed = door.client.wait(door.output)
    assert failed.told == ("t1", "RESULT_FAILURE")
    assert "no stock" in failed.data["message"]


@pytest.mark.parametrize("opened", ["classic", "quorum"], indirect=True)  # they have policies
def test_message_that_died_in_its_queue_is_answered(door: Door) -> None:
    """It expires; the queue is closed, so that no keeper takes it before."""
    door.make()
    door.close_queue()
    door.apply_policy({"dead-letter-exchange": "scenario.dlx"})
    late = task_message("late", {"text": "hello"}, correlationId="c-9")
    door.client.publish(door.input, late, expiration="500")

    answer = door.client.wait(door.output)

    assert answer.told == ("late", "RESULT_EXCEPTION")
    assert answer.data["error"] == "expired"
    assert answer.task["correlationId"] == "c-9"
    empty(door, door.input, door.output, door.rejected)


@pytest.mark.parametrize("opened", ["quorum"], indirect=True)  # others have no delivery limit
@pytest.mark.slow
def test_message_that_killed_as_many_consumers_as_its_queue_allows_is_answered(door: Door) -> None:
    door.make()
    door.close_queue()
    door.apply_policy({"dead-letter-exchange": "scenario.dlx", "delivery-limit": 1})
    door.send("poison", {"text": "hello"})
    for _ in range(2):
        door.take_and_die(door.input)

    answer = door.client.wait(door.output)

    assert answer.told == ("poison", "RESULT_EXCEPTION")
    assert answer.data["error"] == "RETRIES_EXCEEDED"
    kept = door.client.wait(door.rejected)
    assert kept.headers["x-caf-worker-rejected"] == "RETRIES_EXCEEDED"
    empty(door, door.input, door.output, door.rejected)
