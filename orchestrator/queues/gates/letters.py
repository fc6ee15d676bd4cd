"""Dead letters of gates: messages that died in an input or retry queue are answered all the same.

They expired, were too many, were rejected, or were delivered too often. Each becomes a refusal,
unless its task is known: then a row answers for it already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings

from orchestrator.core import brokers, dead_letters
from orchestrator.core.dead_letters import Letter
from orchestrator.queues.gates import headers as names
from orchestrator.queues.gates import intake
from orchestrator.queues.gates.judging import Delivery
from orchestrator.queues.models import Gate

log = structlog.get_logger(__name__)


def take(letters: Sequence[Letter], *, now: datetime) -> set[int]:
    """Refuse the dead letters of gates; returns their positions. Any keeper tells the answers.

    A message that was rejected before is nobody's to answer, and stays a dead letter. A letter that
    comes again finds its ticket.
    """
    gates = _by_queue({letter.died_in for letter in letters})
    dead: dict[Gate, list[int]] = defaultdict(list)
    for position, letter in enumerate(letters):
        gate = gates.get((letter.broker, letter.died_in))
        if gate is not None and names.REJECTED not in letter.headers:
            dead[gate].append(position)
    for gate, positions in dead.items():
        deliveries = [_delivery(letters[position]) for position in positions]
        intake.take_in(deliveries, gate=gate, holder="", now=now)
        log.warning("messages died in a gate's queue", queue=gate.queue.name, n=len(positions))
    return {position for positions in dead.values() for position in positions}


def _by_queue(queues: set[str]) -> dict[tuple[str, str], Gate]:
    """Gates by broker and name of their input and retry queues, if it is one of these."""
    found = {}
    for gate in Gate.objects.select_related("queue__action"):
        for queue in {gate.input_queue, gate.retries_go_to} & queues:
            found[gate.broker, queue] = gate
    return found


def _delivery(letter: Letter) -> Delivery:
    return intake.deliver(
        letter.raw_body,
        letter.headers,
        letter.properties,
        redelivered=letter.is_redelivered,
        died_of=letter.died_of,
    )


def drain(*, now: datetime) -> dict[str, Any]:
    """Drain the dead letters of the brokers that gates have of their own; returns by alias what
    became of them. A broker that is away stops no other.

    Their queue is declared there first: the policies of gates name its exchange, and dead letters
    of quorum queues wait in these until it exists.
    """
    if not settings.MUSTER.dead_letter_enabled:
        return {}
    outcomes: dict[str, Any] = {}
    aliases = Gate.objects.exclude(broker=brokers.DEFAULT).values_list("broker", flat=True)
    for alias in sorted(set(aliases)):
        try:
            outcomes[alias] = asdict(dead_letters.drain(broker=alias))
        except brokers.UnknownBroker as error:
            outcomes[alias] = {"error": str(error)}
        except brokers.errors() as error:
            problem = brokers.explain(error, alias)
            log.warning("dead letters of gates not drained", broker=alias, error=problem)
            outcomes[alias] = {"error": problem}
    return outcomes
