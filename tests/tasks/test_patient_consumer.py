"""What a pool child has half told survives the loss of the broker's connection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kombu.asynchronous.hub import Hub

from tasks import patient_consumer


def reading(descriptor: int, told: list[bytes]) -> Iterator[None]:
    """As the pool reads a message: a generator that comes back for more."""
    while True:
        try:
            told.append(os.read(descriptor, 100))
        except BlockingIOError:
            yield
        else:
            return


def test_half_done_messages_are_kept_and_everything_else_is_forgotten() -> None:
    hub = Hub()
    ours, broker = os.pipe(), os.pipe()
    for descriptor in (*ours, *broker):
        os.set_blocking(descriptor, False)
    told: list[bytes] = []
    try:
        half_done: Any = reading(ours[0], told)
        next(half_done)
        hub.add_reader(ours[0], half_done)
        hub.add_reader(broker[0], lambda: None)

        patient_consumer._reset(hub)

        assert set(hub.readers) == {ours[0]}
        os.write(ours[1], b"the rest")
        hub.call_later(0.01, bool)
        hub.run_once()
        assert told == [b"the rest"]
    finally:
        hub.close()
        for descriptor in (*ours, *broker):
            os.close(descriptor)


def test_set_that_a_thread_of_the_pool_changes_meanwhile_is_walked_through_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = [RuntimeError("Set changed size during iteration") for _ in range(2)]
    closed: list[bool] = []

    def close(_: Any) -> None:
        if errors:
            raise errors.pop()
        closed.append(True)

    monkeypatch.setattr("celery.worker.consumer.Consumer.on_close", close)
    consumer = patient_consumer.Consumer.__new__(patient_consumer.Consumer)
    consumer.pool = None

    consumer.on_close()
    assert closed == [True]

    errors.append(RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        consumer.on_close()
