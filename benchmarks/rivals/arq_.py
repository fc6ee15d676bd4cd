"""arq on Redis, with results there: one asynchronous process, polling as often as it may."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from arq import create_pool  # type: ignore[import-not-found, unused-ignore]
from arq.connections import RedisSettings  # type: ignore[import-not-found, unused-ignore]

from benchmarks.rivals.done import begin, is_finished, mark, ready  # noqa: F401 - called by name

AT_ONCE = 40
"""Its pool of connections is not larger than fifty."""

REDIS = RedisSettings.from_dsn(os.environ["REDIS_URL"])


async def noop(context: dict[str, Any]) -> bool:
    mark()
    return True


async def _say_ready(context: dict[str, Any]) -> None:
    ready()


class WorkerSettings:
    functions = (noop,)
    redis_settings = REDIS
    on_startup = _say_ready
    max_jobs = 100
    poll_delay = 0.01
    """Half a second, its default, would be most of a run."""


def prepare() -> None:
    """Nothing: Redis makes a queue with its first job."""


def submit(*, count: int, bulk: bool) -> None:
    asyncio.run(_submit(count, AT_ONCE if bulk else 1))


async def _submit(count: int, at_once: int) -> None:
    pool = await create_pool(REDIS)
    for first in range(0, count, at_once):
        jobs = (pool.enqueue_job("noop") for _ in range(min(at_once, count - first)))
        await asyncio.gather(*jobs)
    await pool.close()
