"""Headers of copies and answers: what they carry over, and how much of it."""

from __future__ import annotations

import uuid
from typing import Any

from orchestrator.core import brokers, json_values, lanes, publisher
from orchestrator.core.lanes import Fate, RawMessage
from orchestrator.queues.gates import headers

IDS = ("correlation_id", "message_id", "reply_to", "app_id", "type")


def test_answer_carries_what_its_frame_has_room_for() -> None:
    """45,000 bytes that are no text are stored as 135,000 that are."""
    came = {"x-large": b"\xff" * 45_000, "x-small": b"1", "other": 2}
    assert headers.carried_to_answer(json_values.storable(came)) == {"x-small": "1"}
    assert headers.carried(json_values.storable(came)) == {"x-small": "1", "other": 2}


def test_header_that_amqp_cannot_carry_is_left_out() -> None:
    deep: Any = None
    for _ in range(900):
        deep = [deep]
    assert headers.carried({"x" * 256: 1, "x-deep": deep, "x-none": None}) == {"x-none": None}


def test_text_of_a_property_does_not_grow() -> None:
    assert json_values.storable("\0" * 255) == "?" * 255


def test_largest_headers_break_no_connection(rabbitmq_url: str, settings: Any) -> None:
    settings.GATE_BROKERS = {"gates": rabbitmq_url}
    many = {f"x-{number}": "a" * 10_000 for number in range(20)}
    carried = headers.carried(many)
    assert 100_000 < len(carried) * 10_000 <= headers.MOST_BYTES
    room = headers.MOST_BYTES - headers_size(carried)
    carried = headers.carried(carried | {"x-rest": "a" * (room - 30)})
    assert "x-rest" in carried
    with brokers.connection("gates") as link:
        channel: Any = link.default_channel
        queue = f"large.{uuid.uuid4().hex[:8]}"
        channel.queue_declare(queue, exclusive=True)
        message = RawMessage(
            b"x",
            queue,
            headers=carried | {"x-muster-execution-id": str(uuid.uuid4())},
            properties=dict.fromkeys(IDS, "p" * 255),
        )
        assert publisher.send_raw([message], broker="gates") == [Fate(lanes.TAKEN)]
    publisher.drop_lane("gates")


def headers_size(carried: dict[str, Any]) -> int:
    return sum(len(name) + len(value) + 10 for name, value in carried.items())
