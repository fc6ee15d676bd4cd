"""Celery's view of the queues: the arguments of every queue come from the topology."""

from __future__ import annotations

from typing import Any

from celery.app.amqp import AMQP, Queues
from kombu import Queue

from orchestrator.core import topology


class UnknownQueue(KeyError):
    """The topology has no queue of this name."""


class TopologyQueues(Queues):
    """Looks up every queue in the topology, and never invents one.

    Celery would create a missing queue without arguments: without TTL and dead letter exchange, its
    messages would wait for ever.
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
        # beat sends to the default queue, which must also be in the topology
        return super().Queues(queues or [topology.maintenance_queue().queue()], *args, **kwargs)
