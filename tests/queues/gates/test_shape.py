"""What a task message may look like, and what is said of one that may not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core import json_values
from orchestrator.queues.gates import headers, shape
from tests.queues.gates import messages

MOST_BYTES = 1_000_000


def read(body: bytes, headers: dict[str, Any] | None = None, **properties: Any) -> shape.Reading:
    return shape.read(body, headers or {}, properties, most_bytes=MOST_BYTES)


def accepted(**changed: Any) -> shape.TaskMessage:
    reading = read(messages.body(**changed))
    assert reading.message is not None, reading.problems
    return reading.message


def problems(**changed: Any) -> list[str]:
    return [str(problem) for problem in read(messages.body(**changed)).problems]


def test_message_of_caf_is_read_whole() -> None:
    message = accepted(
        task_id="doc-7",
        context={"svc": messages.encoded({"a": 1})},
        to="orders",
        sourceInfo={"name": "web", "version": "2.1"},
        correlationId="c-1",
        priority=5,
    )
    assert (message.task_id, message.classifier, message.api_version) == ("doc-7", "Echo", 1)
    assert json.loads(message.data) == {"text": "hello"}
    assert message.context == {"svc": b'{"a": 1}'}
    assert (message.to, message.correlation_id, message.priority) == ("orders", "c-1", 5)
    assert message.source == {"name": "web", "version": "2.1"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_version_is_one_of_three(version: int) -> None:
    assert accepted(version=version).version == version


def test_version_that_is_absent_is_the_last() -> None:
    members = messages.members()
    del members["version"]
    reading = read(json.dumps(members).encode())
    assert reading.message is not None
    assert reading.message.version == 3


@pytest.mark.parametrize("version", [0, 4, "3", True, 3.0])
def test_other_versions_are_named(version: Any) -> None:
    assert problems(version=version)[0].startswith("/version: expected 1, 2 or 3, found")


def test_unknown_members_are_ignored() -> None:
    assert accepted(somethingElse={"a": [1]}).task_id == "t1"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"taskId": None}, "/taskId: expected 1 to 200 characters, found nothing"),
        ({"taskId": ""}, "/taskId: expected 1 to 200 characters, found 0 characters"),
        ({"taskId": "x" * 201}, "/taskId: expected 1 to 200 characters, found 201 characters"),
        ({"taskId": "a\0b"}, "/taskId: contains a NUL character, which PostgreSQL cannot store"),
        ({"taskData": "not base64"}, "/taskData: is not base64"),
        ({"taskData": {"text": 1}}, "/taskData: expected base64, found an object"),
        ({"taskStatus": "DONE"}, "/taskStatus: expected one of NEW_TASK"),
        ({"context": [1]}, "/context: expected an object of base64 texts, found a list"),
        ({"context": {"svc": "%"}}, "/context: 'svc': is not base64"),
        ({"to": 5}, "/to: expected text, found a number"),
        ({"tracking": "J1"}, "/tracking: expected an object"),
        ({"tracking": {"trackTo": 1}}, "/tracking: trackTo: expected text"),
        ({"tracking": {"lastStatusCheckTime": "soon"}}, "/tracking: lastStatusCheckTime: expected"),
        ({"tracking": {"statusCheckIntervalMillis": -1}}, "/tracking: statusCheckIntervalMillis"),
        ({"sourceInfo": "me"}, "/sourceInfo: expected an object, found text"),
        ({"correlationId": 1}, "/correlationId: expected text, found a number"),
        ({"priority": 101}, "/priority: expected a whole number from -100 to 100, found 101"),
        ({"taskApiVersion": "1"}, "/taskApiVersion: expected a whole number from 0"),
    ],
)
def test_bad_member_is_named_with_what_was_expected(changed: dict[str, Any], text: str) -> None:
    [problem] = problems(**changed)
    assert problem.startswith(text)


def test_all_problems_are_named_at_once() -> None:
    assert len(problems(taskId=None, priority="high", context=3, version=9)) == 4


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[]", "expected a JSON object, found a list"),
        (b"null", "expected a JSON object, found nothing"),
        (b"[" * 100_000, "nested"),
        (b"x" * (MOST_BYTES + 1), "expected at most 1,000,000 bytes, found 1,000,001"),
    ],
)
def test_body_that_is_no_object_is_named(body: bytes, text: str) -> None:
    [problem] = read(body).problems
    assert text in str(problem)


def test_id_of_unreadable_message_is_that_of_amqp_or_nothing() -> None:
    assert read(b"?", message_id="m-1").task_id == "m-1"
    assert read(b"?").task_id == ""


def test_what_is_valid_of_an_invalid_message_is_kept_for_its_answer() -> None:
    reading = read(messages.body(priority="high", context={"svc": messages.encoded(1)}))
    assert reading.task_id == "t1"
    assert reading.envelope["context"] == {"svc": messages.encoded(1)}
    assert "priority" not in reading.envelope


@pytest.mark.parametrize(("value", "tries"), [(0, 0), (3, 3), ("3", 3), (b"3", 3)])
def test_retry_header_is_an_integer_or_its_text(value: Any, tries: int) -> None:
    reading = read(messages.body(), {headers.RETRY: value})
    assert (reading.tries, reading.problems) == (tries, ())


@pytest.mark.parametrize("value", [-1, "-1", "x", "", True, 1.5, None, "9" * 30, 2**31, [1]])
def test_other_retry_headers_are_problems(value: Any) -> None:
    [problem] = read(messages.body(), {headers.RETRY: value}).problems
    assert problem.pointer == f"header {headers.RETRY}"


def test_data_in_another_store_is_refused() -> None:
    [problem] = read(messages.body(), {"x-caf-payload-offloading-storage-ref": "s3://a"}).problems
    assert "another store" in problem.text


def test_priority_of_the_message_beats_the_property() -> None:
    assert read(messages.body(priority=-3), priority=9).message.priority == -3  # type: ignore[union-attr]
    assert read(messages.body(), priority=9).message.priority == 9  # type: ignore[union-attr]
    assert read(messages.body(), priority=255).message.priority == 100  # type: ignore[union-attr]
    assert read(messages.body()).message.priority is None  # type: ignore[union-attr]


def test_time_of_last_check_is_milliseconds_or_iso() -> None:
    at = datetime(2026, 11, 23, 12, tzinfo=UTC)
    for value in (int(at.timestamp() * 1000), at.isoformat(), "2026-11-23T12:00:00"):
        tracking = accepted(tracking={"lastStatusCheckTime": value}).tracking
        assert tracking == {"lastStatusCheckTime": at.isoformat()}


def test_digest_is_of_what_is_asked_for() -> None:
    digest = accepted().digest
    assert accepted(to="elsewhere", priority=3, correlationId="c").digest == digest
    assert accepted(taskData=messages.encoded({"text": "bye"})).digest != digest
    assert accepted(context={"svc": messages.encoded(1)}).digest != digest
    assert accepted(taskApiVersion=2).digest != digest
    assert accepted(taskClassifier="Other").digest != digest


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
HEADER_VALUES = JSON | st.binary() | st.datetimes() | st.decimals().map(Decimal)
MEMBERS = st.fixed_dictionaries({}, optional=dict.fromkeys(messages.members(), JSON))


@given(body=st.binary() | MEMBERS.map(lambda members: json.dumps(members).encode()))
def test_no_bytes_raise_anything(body: bytes) -> None:
    reading = read(body)
    assert (reading.message is None) == bool(reading.problems)
    assert not list(json_values.faults(dict(reading.envelope)))
    assert json_values.text_fault(" ".join(map(str, reading.problems))) is None


@given(
    found=st.dictionaries(
        st.sampled_from([headers.RETRY, headers.REJECTED, headers.DELIVERY_COUNT, "x-other"]),
        HEADER_VALUES,
    ),
    properties=st.dictionaries(
        st.sampled_from(["message_id", "priority", "user_id", "reply_to"]), HEADER_VALUES
    ),
)
def test_no_headers_and_properties_raise_anything(
    found: dict[str, Any], properties: dict[str, Any]
) -> None:
    reading = shape.read(messages.body(), found, properties, most_bytes=MOST_BYTES)
    assert (reading.message is None) == bool(reading.problems)
    assert headers.delivered_before(found) >= 0
    assert not list(json_values.faults(json_values.storable(found)))
    assert not list(json_values.faults(json_values.storable(properties)))
