"""taskiq on RabbitMQ, with results in Redis: two processes, as many requests at once as its queue
of confirms takes."""

from __future__ import annotations

import asyncio
import os

from taskiq import TaskiqEvents, TaskiqState  # type: ignore[import-not-found, unused-ignore]
from taskiq_aio_pika import AioPikaBroker  # type: ignore[import-not-found, unused-ignore]
from taskiq_redis import (  # type: ignore[import-not-found, unused-ignore]
    RedisAsyncResultBackend,
)

from benchmarks.rivals.done import begin, is_finished, mark, ready  # noqa: F401 - called by name

AT_ONCE = 200

broker = AioPikaBroker(os.environ["BROKER_URL"]).with_result_backend(
    RedisAsyncResultBackend(os.environ["REDIS_URL"], result_ex_time=600)
)


@broker.on_event(TaskiqEvents.WORKER_STARTUP)  # type: ignore[untyped-decorator, unused-ignore]
async def _say_ready(state: TaskiqState) -> None:
    ready()


@broker.task  # type: ignore[untyped-decorator, unused-ignore]
async def noop() -> bool:
    mark()
    return True


def prepare() -> None:
    """Nothing: the broker declares its queue when it starts."""


def submit(*, count: int, bulk: bool) -> None:
    asyncio.run(_submit(count, AT_ONCE if bulk else 1))


async def _submit(count: int, at_once: int) -> None:
    await broker.startup()
    for first in range(0, count, at_once):
        await asyncio.gather(*(noop.kiq() for _ in range(min(at_once, count - first))))
    await broker.shutdown()
