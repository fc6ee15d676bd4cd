"""RQ on Redis, with results there: two workers that do not fork for each job.

Its default worker forks, which costs milliseconds; `SimpleWorker` is its own way without.
"""

from __future__ import annotations

import logging
import multiprocessing
import os

from redis import Redis
from rq import Queue, SimpleWorker  # type: ignore[import-not-found, unused-ignore]

from benchmarks.rivals.done import begin, is_finished, mark, ready  # noqa: F401 - called by name

WORKERS = 2

queue = Queue("rival", connection=Redis.from_url(os.environ["REDIS_URL"]))


def noop() -> bool:
    mark()
    return True


def prepare() -> None:
    """Nothing: Redis makes a queue with its first job."""


def submit(*, count: int, bulk: bool) -> None:
    if not bulk:
        for _ in range(count):
            queue.enqueue(noop)
        return
    for first in range(0, count, 1_000):
        number = min(1_000, count - first)
        queue.enqueue_many([Queue.prepare_data(noop) for _ in range(number)])


def _work() -> None:
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    link = Redis.from_url(os.environ["REDIS_URL"])
    SimpleWorker([Queue("rival", connection=link)], connection=link).work()


if __name__ == "__main__":
    workers = [multiprocessing.Process(target=_work) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    ready()
    for worker in workers:
        worker.join()
