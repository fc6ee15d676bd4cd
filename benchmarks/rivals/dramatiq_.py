"""Dramatiq on RabbitMQ, with results in Redis: two processes, as its guide starts it.

It acknowledges late, retries and confirms nothing unless told to; each result is kept for ten
minutes, its default.
"""

from __future__ import annotations

import os

import dramatiq  # type: ignore[import-not-found, unused-ignore]
from dramatiq.brokers.rabbitmq import (  # type: ignore[import-not-found, unused-ignore]
    RabbitmqBroker,
)
from dramatiq.results import Results  # type: ignore[import-not-found, unused-ignore]
from dramatiq.results.backends import (  # type: ignore[import-not-found, unused-ignore]
    RedisBackend,
)

from benchmarks.rivals.done import begin, is_finished, mark, ready  # noqa: F401 - called by name


class _SaysReady(dramatiq.Middleware):  # type: ignore[misc, unused-ignore]
    def after_worker_boot(self, broker: object, worker: object) -> None:
        ready()


broker = RabbitmqBroker(url=os.environ["BROKER_URL"])
broker.add_middleware(Results(backend=RedisBackend(url=os.environ["REDIS_URL"])))
broker.add_middleware(_SaysReady())
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)  # type: ignore[untyped-decorator, unused-ignore]
def noop() -> bool:
    mark()
    return True


def prepare() -> None:
    """Nothing: the worker declares its queue."""


def submit(*, count: int, bulk: bool) -> None:
    """It has no bulk request."""
    for _ in range(count):
        noop.send()
