"""Celery's view of the queues: whatever name `-Q` asks for, its arguments are the topology's."""

from __future__ import annotations

from typing import Any

from celery.app.amqp import AMQP, Queues
from kombu import Queue

from orchestrator.core import topology


class UnknownQueue(KeyError):
    """The topology has no queue of this name."""


class TopologyQueues(Queues):
    """Looks every queue up in the topology, and makes up none.

    Celery would create a missing queue with no arguments at all: without TTL and dead letter
    exchange, whatever waits in it waits for ever.
    """

    def __missing__(self, name: str) -> Queue:
        queue = self.new_missing(name)
        self.add(queue)
        return queue

    def new_missing(self, name: str) -> Queue:
        spec = topology.find(name)
        if spec is None:
            raise UnknownQueue(f"the topology has no queue called {name!r}")
        return spec.queue()


class TopologyAMQP(AMQP):
    """Celery's AMQP helper over TopologyQueues."""

    queues_cls = TopologyQueues

    def Queues(self, queues: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - Celery's name
        # what beat sends goes to the default queue: it must be one of the topology's, too
        return super().Queues(queues or [topology.maintenance_queue().queue()], *args, **kwargs)
