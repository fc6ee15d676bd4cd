"""Each line of the table of verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.queues.gates import headers, judging, shape
from orchestrator.queues.gates.judging import Delivery, Does, Verdict
from orchestrator.queues.gates.problems import Problem
from tests.queues.gates import messages

LIMIT = 3
TOLD, OPEN = SimpleNamespace(told_at="yesterday"), SimpleNamespace(told_at=None)


@dataclass
class Terms:
    input_queue: str = "orders"
    retry_queue: str = "orders.retry"
    rejected_queue: str = "orders.rejected"
    queue_type: str = "classic"
    count_redelivered: bool = True
    divert: str = "refuse"
    forward_to: Collection[str] = ()
    trusted_users: Collection[str] = ()


def fits(message: shape.TaskMessage) -> tuple[str, Mapping[str, Any], Iterable[Problem]]:
    if message.classifier != "Echo":
        return "", {}, [Problem("/taskClassifier", "no action")]
    return "core.echo", {"text": "hello"}, []


def delivery(
    body: bytes | None = None,
    *,
    found: dict[str, Any] | None = None,
    redelivered: bool = False,
    **properties: Any,
) -> Delivery:
    body = messages.body() if body is None else body
    found = found or {}
    reading = shape.read(body, found, properties, most_bytes=100_000)
    return Delivery(body, found, properties, redelivered, reading)


def verdict(
    of: Delivery, *, gate: Terms | None = None, known: Any = None, limit: int = LIMIT
) -> Verdict:
    return judging.judge(of, gate=gate or Terms(), retry_limit=limit, known=known, fits=fits)


def test_new_message_is_taken_in() -> None:
    assert verdict(delivery()) == Verdict(
        Does.TAKE_IN, action_ref="core.echo", parameters={"text": "hello"}
    )


@pytest.mark.parametrize("body", [messages.body(), b"garbage"])
def test_message_that_was_rejected_before_is_only_kept(body: bytes) -> None:
    of = delivery(body, found={headers.REJECTED: headers.INVALID}, redelivered=True)
    assert verdict(of, known=OPEN).does is Does.KEEP_REJECTED


def test_unreadable_message_is_refused_as_invalid_also_when_redelivered() -> None:
    for redelivered in (False, True):
        refused = verdict(delivery(b"garbage", redelivered=redelivered))
        assert (refused.does, refused.rejected) == (Does.REFUSE, headers.INVALID)


def test_message_of_a_stranger_is_refused_before_its_ticket_is_looked_at() -> None:
    gate = Terms(trusted_users=("shop",))
    assert verdict(delivery(), gate=gate, known=TOLD).does is Does.REFUSE
    refused = verdict(delivery(user_id="thief"), gate=gate)
    assert "'thief' is not trusted" in str(refused.problems[0])
    assert verdict(delivery(user_id="shop"), gate=gate).does is Does.TAKE_IN


def test_copy_of_an_answered_message_is_answered_again() -> None:
    assert verdict(delivery(redelivered=True), known=TOLD).does is Does.ANSWER_AGAIN


def test_copy_of_an_open_message_attaches() -> None:
    assert verdict(delivery(redelivered=True), known=OPEN).does is Does.ATTACH


@pytest.mark.parametrize("to", [None, "orders", "ORDERS", "Orders.Retry"])
def test_message_to_nobody_or_to_the_gate_is_ours(to: str | None) -> None:
    assert verdict(delivery(messages.body(to=to))).does is Does.TAKE_IN


def test_message_to_another_queue_is_forwarded_only_where_a_pattern_allows() -> None:
    of = delivery(messages.body(to="invoices.eu"))
    gate = Terms(divert="forward", forward_to=("invoices.*",))
    assert verdict(of, gate=gate) == Verdict(Does.FORWARD, to="invoices.eu")
    for other in (replace(gate, forward_to=("bills",)), replace(gate, divert="refuse")):
        refused = verdict(of, gate=other)
        assert (refused.does, refused.rejected) == (Does.REFUSE, headers.INVALID)
        assert refused.problems[0].pointer == "/to"
    assert verdict(of, gate=replace(gate, divert="run")).does is Does.TAKE_IN


def test_names_of_the_broker_are_never_forwarded_to() -> None:
    assert not judging.is_allowed("amq.gen-x", ["*"])
    assert not judging.is_allowed("", ["*"])
    assert judging.is_allowed("é" * 127, ["*"])
    assert not judging.is_allowed("é" * 128, ["*"]), "AMQP's names have 255 bytes"


def test_redelivered_message_without_a_ticket_is_counted() -> None:
    assert verdict(delivery(redelivered=True)) == Verdict(Does.RETRY, tries=1)
    counted = delivery(redelivered=True, found={headers.RETRY: "2"})
    assert verdict(counted) == Verdict(Does.RETRY, tries=3)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_limit_allows_as_many_retries_as_it_says_on_either_kind_of_queue(kind: str) -> None:
    """`retry_limit` + 1 starts, each lost: from queue to queue with a count, or in one queue."""
    starts, header = 0, 0
    while True:
        starts += 1  # and lost
        found = {headers.RETRY: header} if header else {}
        if kind == "quorum":
            found[headers.DELIVERY_COUNT] = 1
        found_now = verdict(delivery(redelivered=True, found=found))
        if found_now.does is not Does.RETRY:
            break
        header = found_now.tries
    assert found_now.rejected == headers.EXCEEDED
    assert starts == LIMIT + 1


def test_starts_that_only_a_quorum_queue_counted_count() -> None:
    of = delivery(redelivered=True, found={headers.DELIVERY_COUNT: 3})
    gate = Terms(queue_type="quorum")
    assert verdict(of, gate=gate) == Verdict(Does.RETRY, tries=3)
    of = delivery(redelivered=True, found={headers.DELIVERY_COUNT: 4})
    assert verdict(of, gate=gate).rejected == headers.EXCEEDED


def test_redelivery_is_trusted_where_nobody_else_consumes() -> None:
    gate = Terms(count_redelivered=False)
    taken = verdict(delivery(redelivered=True, found={headers.RETRY: 2}), gate=gate)
    assert (taken.does, taken.tries) == (Does.TAKE_IN, 2)


def test_changed_limit_applies_at_once() -> None:
    of = delivery(found={headers.RETRY: 5, headers.RETRY_LIMIT: 10})
    assert verdict(of, limit=10).does is Does.TAKE_IN
    assert verdict(of, limit=2).rejected == headers.EXCEEDED


def test_limit_in_a_header_is_not_read() -> None:
    of = delivery(found={headers.RETRY: 4, headers.RETRY_LIMIT: 1_000}, redelivered=True)
    assert verdict(of).rejected == headers.EXCEEDED


def test_message_that_no_action_takes_is_refused() -> None:
    refused = verdict(delivery(messages.body(taskClassifier="Unknown")))
    assert (refused.does, refused.rejected) == (Does.REFUSE, headers.INVALID)
    assert str(refused.problems[0]) == "/taskClassifier: no action"


@given(
    body=st.binary() | st.just(messages.body()) | st.just(messages.body(to="elsewhere")),
    retry=st.none() | st.integers() | st.text() | st.binary(),
    count=st.none() | st.integers(),
    redelivered=st.booleans(),
    known=st.sampled_from([None, OPEN, TOLD]),
    divert=st.sampled_from(["forward", "run", "refuse"]),
    limit=st.integers(1, 1_000),
)
def test_every_delivery_has_a_verdict_and_no_count_passes_the_limit(
    body: bytes, retry: Any, count: Any, redelivered: bool, known: Any, divert: str, limit: int
) -> None:
    found = {headers.RETRY: retry, headers.DELIVERY_COUNT: count}
    of = delivery(body, found={k: v for k, v in found.items() if v is not None})
    of = replace(of, redelivered=redelivered)
    gate = Terms(divert=divert, forward_to=("*",))
    decided = verdict(of, gate=gate, known=known, limit=limit)
    if decided.does in (Does.RETRY, Does.TAKE_IN):
        assert 0 <= decided.tries <= limit
    if decided.does is Does.RETRY:
        assert decided.tries > of.reading.tries
    if decided.does is Does.REFUSE:
        assert decided.problems
        assert decided.rejected in (headers.INVALID, headers.EXCEEDED)


def test_count_that_a_publisher_wrote_is_not_believed_of_a_classic_queue() -> None:
    of = delivery(redelivered=True, found={headers.DELIVERY_COUNT: 1_000})
    assert verdict(of) == Verdict(Does.RETRY, tries=1)
