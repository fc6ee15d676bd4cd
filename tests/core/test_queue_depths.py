"""Depths of queues in the metrics: as the broker has them."""

from __future__ import annotations

from typing import Any

from orchestrator.core import clock, queue_depths, topology


def sampled() -> dict[tuple[str, str], float]:
    """The values by metric and queue."""
    return {
        (sample.name, sample.labels.get("queue", "")): sample.value
        for family in queue_depths.families(clock.now())
        for sample in family.samples
    }


def test_messages_that_wait_are_counted_in_their_queue(channel: Any) -> None:
    topology.declare(channel, topology.shared_queues())
    letters, requests = topology.dead_letter_queue().name, topology.requests_queue().name
    before = sampled()
    assert before["muster_dlq_depth", ""] == 0
    assert before["muster_queue_messages", requests] == 0
    for exchange, key, number in (
        (topology.dead_letter_exchange(), "whatever it died of", 3),
        (topology.executions_exchange(), topology.REQUESTED, 2),
    ):
        for _ in range(number):
            channel.basic_publish(channel.prepare_message(b"odd"), exchange, key)
    after = sampled()
    assert after["muster_dlq_depth", ""] == 3
    assert after["muster_queue_messages", letters] == 3
    assert after["muster_queue_messages", requests] == 2
    assert after["muster_broker_up", ""] == 1

    channel.basic_get(letters, no_ack=True)
    assert sampled()["muster_dlq_depth", ""] == 2
