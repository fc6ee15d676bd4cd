"""Being a Celery worker: the commands that start one end here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from celery.app.utils import find_app
from celery.utils.nodenames import host_format
from django.db import connections


def run_worker(
    *,
    name: str,
    queues: Sequence[str],
    pool: str,
    concurrency: int,
    loglevel: str,
    sends_events: bool = False,
) -> NoReturn:
    """Do what `celery -A settings worker` does, and exit as it exits.

    In this process: another one would start Python and Django again, and so take half as long again
    to be ready. Gossip and mingle tell workers of each other, which nothing of ours listens to.
    """
    connections.close_all()  # a connection must not be shared with the pool's children
    sys.stdout.flush()
    worker = find_app("settings").Worker(
        # a life of its own: the broker may still hold the control queue of an earlier one
        hostname=host_format(f"{name}.{os.getpid()}@%h"),
        queues=list(queues),
        pool_cls=pool,
        concurrency=concurrency,
        loglevel=loglevel,
        task_events=sends_events,
        without_gossip=True,
        without_mingle=True,
    )
    worker.start()
    sys.exit(worker.exitcode)
