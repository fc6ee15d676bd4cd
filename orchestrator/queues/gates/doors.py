"""The queues of a gate: their names are the user's, their arguments those that CAF declares.

A queue's arguments cannot be changed, and whoever declares it second must name the same. So there
is nothing of ours in them: dead letters, lengths and delivery limits come by policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from orchestrator.core import declarations
from orchestrator.core.errors import MusterError
from orchestrator.core.topology import QueueSpec
from orchestrator.queues.gates import choosing
from orchestrator.queues.models import Gate

MOST_MESSAGES_HEARD = 10_000


class GateQueueDiffers(MusterError):
    """A queue of the gate exists with other arguments. Declare the gate as it is, or delete it."""


def arguments(gate: Gate) -> dict[str, Any]:
    """The arguments of all queues of a gate, and no others."""
    wanted: dict[str, Any] = {"x-queue-type": str(gate.queue_type)}
    if gate.max_priority:
        wanted["x-max-priority"] = gate.max_priority
    return wanted


def consumed(gate: Gate) -> list[str]:
    """The queues that a keeper consumes."""
    names = [gate.input_queue]
    if gate.consumes_retry and gate.retries_go_to != gate.input_queue:
        names.append(gate.retries_go_to)
    return names


def named(gate: Gate) -> dict[str, str]:
    """The purposes of the gate's queues, and their names; without those that it does not have."""
    names = {
        "input": gate.input_queue,
        "retry": gate.retries_go_to,
        "rejected": gate.rejected_queue,
        "output": gate.output_queue,
        "paused": gate.paused_queue,
    }
    return {purpose: name for purpose, name in names.items() if name}


def specs(gate: Gate) -> Iterator[tuple[str, QueueSpec]]:
    for purpose, name in named(gate).items():
        yield (
            purpose,
            QueueSpec(
                name=name,
                exchange="",
                routing_key=name,
                owner="gate",
                purpose=f"{purpose} of queue {gate.queue.name}",
                arguments=arguments(gate),
                exchange_type="direct",
            ),
        )


def declare(link: Connection, gate: Gate) -> None:
    """Declare the queues of a gate. Those that it only publishes to are created if they are
    missing, and otherwise left as their consumers declared them.

    Raises GateQueueDiffers, which names queue, argument, wanted and found value.
    """
    ours = {gate.input_queue, gate.retries_go_to}
    for _, spec in specs(gate):
        if spec.name not in ours and _exists(link, spec.name):
            continue
        finding = declarations.inspect_queue(link, spec)
        if finding.is_missing:
            with declarations.throw_away(link) as channel:
                spec.queue()(channel).declare()
        elif finding.differences:
            raise GateQueueDiffers(declarations.describe([finding]))


def _exists(link: Connection, name: str) -> bool:
    try:
        with declarations.throw_away(link) as channel:
            channel.queue_declare(name, passive=True)
    except NotFound:
        return False
    return True


def policy(gate: Gate, *, dead_letter_exchange: str) -> dict[str, Any]:
    """The policy that the broker should have for the input and retry queues of a gate; Muster
    prints it, and never applies it.

    RabbitMQ 4.0 and later drop a message of a quorum queue at the 21st delivery, unless the policy
    has a limit, and a place for those beyond it. `at-least-once` needs `reject-publish`
    (https://www.rabbitmq.com/docs/quorum-queues).
    """
    wanted: dict[str, Any] = {"dead-letter-exchange": dead_letter_exchange}
    if gate.queue_type == Gate.QueueType.QUORUM:
        wanted |= {
            "dead-letter-strategy": "at-least-once",
            "overflow": "reject-publish",
            "delivery-limit": choosing.retry_limit(gate) + 10,
        }
    return wanted
