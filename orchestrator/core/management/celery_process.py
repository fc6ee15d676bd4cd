"""The Celery worker in the process of a command."""

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
    """Run `celery -A settings worker` in this process, and exit with its exit code.

    Another process would start Python and Django again, and take half as long again to be ready.
    """
    connections.close_all()  # a connection must not be shared with the pool's children
    sys.stdout.flush()
    worker = find_app("settings").Worker(
        # unique: the broker may still have the control queue of an earlier process
        hostname=host_format(f"{name}.{os.getpid()}@%h"),
        queues=list(queues),
        pool_cls=pool,
        concurrency=concurrency,
        loglevel=loglevel,
        task_events=sends_events,
    )
    worker.start()
    sys.exit(worker.exitcode)
