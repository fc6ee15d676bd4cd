"""The orders that an operator may give to a gate: to answer again, and to send a task message."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.core import brokers, lanes, publisher
from orchestrator.core.errors import Conflict, Unavailable
from orchestrator.core.lanes import RawMessage
from orchestrator.queues.gates import doors, shape
from orchestrator.queues.models import Gate, Ticket


class NotSent(Unavailable):
    """The broker did not take the task message."""


class MovedElsewhere(Conflict):
    """The task is on another queue again: it has no answer yet."""


def tell_again(gate: Gate, *, ids: list[int] | None = None) -> int:
    """Have these tickets answered again, or with None all whose answer is due, without waiting for
    the next try; returns how many. Keepers find them within seconds. The answers have the ids that
    they had. Raises MovedElsewhere.
    """
    tickets = Ticket.objects.filter(gate=gate)
    if ids is None:
        return tickets.over().update(next_tell_at=None)
    wanted = tickets.filter(pk__in=ids)
    if wanted.filter(moved_at__isnull=False, refusal__isnull=True).exists():
        raise MovedElsewhere
    return wanted.update(told_at=None, told_to="", next_tell_at=None, tell_tries=0)


def send(
    gate: Gate,
    *,
    task_id: str,
    classifier: str,
    data: bytes,
    context: Mapping[str, bytes] | None = None,
    priority: int | None = None,
) -> None:
    """Publish a task message to the gate's input queue, as a client does. Raises NotSent,
    BrokerUnavailable and GateQueueDiffers."""
    message = shape.TaskMessage(
        task_id=task_id,
        classifier=classifier,
        data=data,
        context=context or {},
        priority=priority,
    )
    members = message.envelope() | {"taskData": shape.as_base64(data)}
    properties = {"content_type": "application/json", "message_id": task_id}
    raw = RawMessage(json.dumps(members).encode(), gate.input_queue, properties=properties)
    [fate] = publisher.send_raw([raw], broker=gate.broker)
    if fate.kind == lanes.RETURNED:  # no keeper has seen this gate yet
        _declare(gate)
        [fate] = publisher.send_raw([raw], broker=gate.broker)
    if not fate.is_taken:
        raise NotSent(f"{gate.input_queue}: {fate.reason}")


def _declare(gate: Gate) -> None:
    try:
        with brokers.connection(gate.broker) as link:
            brokers.ensure_connected(link)
            doors.declare(link, gate)
    except brokers.errors() as error:
        raise publisher.BrokerUnavailable(brokers.explain(error, gate.broker)) from error
