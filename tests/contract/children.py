"""What the cases run in another process: `python -m tests.contract.children <what> <url> ...`.

Each prints a line for what it has done and ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Callable
from typing import Any

from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES["sqlitemq"] = "orchestrator.sqlitemq:Transport"


def hold(url: str, queue: str, prefetch: str) -> None:
    """Take messages and never settle them."""
    with Connection(url) as connection:
        channel: Any = connection.channel()
        channel.basic_qos(0, int(prefetch), False)
        channel.basic_consume(queue, callback=lambda message: say("took one"))
        _drain(connection)


def work(url: str, queue: str) -> None:
    """Acknowledge every message and print its body."""
    with Connection(url) as connection:
        channel: Any = connection.channel()
        channel.basic_qos(0, 5, False)

        def on_message(raw: Any) -> None:
            message = channel.message_to_python(raw)
            message.ack()
            say(message.payload)

        channel.basic_consume(queue, callback=on_message)
        say("ready")
        _drain(connection)


def own(url: str, exclusive: str, auto_delete: str) -> None:
    """Own an exclusive queue, and consume from an auto-delete one."""
    with Connection(url) as connection:
        channel: Any = connection.channel()
        channel.queue_declare(exclusive, exclusive=True, auto_delete=False)
        channel.queue_declare(auto_delete, auto_delete=True)
        channel.basic_consume(auto_delete, callback=say)
        say("ready")
        _drain(connection)


def publish(url: str, queue: str, count: str) -> None:
    with Connection(url, transport_options={"confirm_publish": True}) as connection:
        for number in range(int(count)):
            connection.Producer(auto_declare=False).publish(number, routing_key=queue)
    say("published")


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _drain(connection: Connection) -> None:
    """Until it is to end, and what was delivered to it is settled."""
    while not select.select([sys.stdin], [], [], 0)[0]:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.05)
    with contextlib.suppress(TimeoutError):
        while True:
            connection.drain_events(timeout=0.5)


if __name__ == "__main__":
    what: dict[str, Callable[..., None]] = {
        "hold": hold,
        "work": work,
        "own": own,
        "publish": publish,
    }
    what[sys.argv[1]](*sys.argv[2:])
