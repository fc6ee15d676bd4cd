"""What has arrived in a queue."""

from __future__ import annotations

from typing import Any


def get(channel: Any, queue: str) -> Any:
    message = channel.basic_get(queue, no_ack=True)
    assert message is not None, f"nothing in {queue}"
    return channel.message_to_python(message)
