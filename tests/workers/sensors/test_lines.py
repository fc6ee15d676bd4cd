"""What a line of a sensor says, and that no line takes more memory than it may."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from workers.sensors import lines
from workers.sensors.lines import Batch, Buffer, LineTooLong


def batch_of(*said: Any) -> Batch:
    batch = Batch()
    for each in said:
        batch.add(each if isinstance(each, bytes) else json.dumps(each).encode())
    return batch


def test_line_has_a_number_an_event_and_a_cursor() -> None:
    event = {
        "trigger": "shop.order", "payload": {"number": 1}, "key": "1",
        "occurred_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    batch = batch_of({"n": 7, "event": event, "cursor": {"last": 1}})
    [report] = batch.reports
    assert (batch.number, batch.cursor, batch.faults) == (7, {"last": 1}, [])
    assert (report.trigger, report.payload, report.key) == ("shop.order", {"number": 1}, "1")
    assert report.occurred_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_time_of_an_event_has_no_offset_that_a_database_may_refuse() -> None:
    batch = batch_of({"event": {"trigger": "a.b", "occurred_at": "2026-01-01T00:00:00-23:00"}})
    assert str(batch.reports[0].occurred_at) == "2026-01-01 23:00:00+00:00"


def test_batch_has_the_last_number_and_the_last_cursor() -> None:
    batch = batch_of({"n": 1, "cursor": {"a": 1}}, {"alive": True}, {"n": 2, "cursor": {"a": 2}})
    assert (batch.number, batch.cursor, batch.lines) == (2, {"a": 2}, 3)


@pytest.mark.parametrize(
    "said",
    [
        b"hello",
        b"[1]",
        b'{"n": 1, "evnt": {}}',
        {"event": []},
        {"event": {"payload": {}}},
        {"event": {"trigger": 1.5}},
        {"event": {"trigger": True}},
        {"event": {"trigger": "a.b", "key": 1}},
        {"event": {"trigger": "a.b", "payload": [1]}},
        {"event": {"trigger": "a.b", "occurred_at": "now"}},
        {"event": {"trigger": "a.b", "occurred_at": "9999-12-31T23:59:59-05:00"}},
        {"event": {"trigger": "a.b", "occurred_at": "0001-01-01T00:00:00+05:00"}},
        {"event": {"trigger": "a.b", "color": "red"}},
        {"cursor": 7},
        b"[" * 100_000,
    ],
)
def test_line_that_says_nothing_is_a_fault_and_is_acknowledged(said: Any) -> None:
    batch = batch_of(said, {"n": 9})
    assert len(batch.faults) == 1
    assert not batch.reports
    assert batch.number == 9


def test_buffer_hands_over_whole_lines_a_hundred_at_a_time() -> None:
    buffer = Buffer(1_000)
    for number in range(250):
        buffer.feed(b'{"n": %d}\n' % number)
    buffer.feed(b'{"n": 25')
    assert [buffer.take().lines for _ in range(4)] == [100, 100, 50, 0]
    buffer.feed(b"0}\n")
    assert buffer.take().number == 250


def test_line_without_an_end_is_refused_before_it_takes_memory() -> None:
    buffer = Buffer(1_000)
    buffer.feed(b"x" * 1_000)
    with pytest.raises(LineTooLong):
        buffer.feed(b"x")


def test_what_the_service_says_is_a_line_each() -> None:
    assert lines.acknowledged(7) == b'{"ack": 7}\n'
    assert json.loads(lines.configure(cursor={"ä": 1})) == {"configure": {"cursor": {"ä": 1}}}
