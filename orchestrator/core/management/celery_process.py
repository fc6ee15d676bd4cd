"""The Celery worker in the process of a command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from celery.app.utils import find_app
from celery.utils.nodenames import host_format
from django.conf import settings
from django.db import connections


def run_worker(
    *,
    name: str,
    queues: Sequence[str],
    pool: str,
    concurrency: int,
    loglevel: str,
    sends_events: bool = False,
    keeps_gates: bool = False,
    replaces_worker: bool = False,
) -> NoReturn:
    """Run `celery -A settings worker` in this process, and exit with its exit code.

    Another process would start Python and Django again, and take half as long again to be ready.
    """
    connections.close_all()  # a connection must not be shared with the pool's children
    sys.stdout.flush()
    app: Any = find_app("settings")
    app.keeps_gates = keeps_gates  # read by tasks.gates
    worker = app.Worker(
        # the same after a restart: Celery's tools take another name for another worker
        hostname=host_format(f"{name}@%h"),
        queues=list(queues),
        pool_cls=pool,
        concurrency=concurrency,
        loglevel=loglevel,
        # None: as MUSTER_CELERY_EVENTS says
        task_events=sends_events or None,
        # no banner among lines for machines
        quiet=settings.LOG_AS_JSON,
        replace=replaces_worker,  # read by workers.bootsteps
    )
    worker.start()
    sys.exit(worker.exitcode)
