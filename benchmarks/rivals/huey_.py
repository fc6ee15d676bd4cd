"""Huey on Redis, with results there: two processes, and no scheduler of periodic tasks."""

from __future__ import annotations

import os

from huey import RedisHuey  # type: ignore[import-not-found, unused-ignore]

from benchmarks.rivals.done import begin, is_finished, mark, ready  # noqa: F401 - called by name

huey = RedisHuey("rival", url=os.environ["REDIS_URL"])


@huey.on_startup()  # type: ignore[untyped-decorator, unused-ignore]
def _say_ready() -> None:
    ready()


@huey.task()  # type: ignore[untyped-decorator, unused-ignore]
def noop() -> bool:
    mark()
    return True


def prepare() -> None:
    """Nothing: Redis makes a queue with its first task."""


def submit(*, count: int, bulk: bool) -> None:
    """It has no bulk request."""
    for _ in range(count):
        noop()
