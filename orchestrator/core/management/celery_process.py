"""Celery's worker and beat in the process of a command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from celery.app.utils import find_app
from celery.utils.nodenames import host_format
from django.conf import settings
from django.db import connections

from orchestrator.core import log_lines


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
    if settings.LOG_AS_JSON:
        # what Celery's handlers of signals say, past all logging
        of_celery: Any = import_module("celery.apps.worker")
        of_celery.safe_say = _say
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


def run_beat(*, loglevel: str) -> None:
    """Run `celery -A settings beat` in this process, without a file of its pid, which after a kill
    would be in the way of the next one."""
    app: Any = find_app("settings")
    app.Beat(loglevel=loglevel).run()


def _say(message: str, file: Any = sys.__stderr__) -> None:
    """Write what a handler of a signal says. If nobody reads it any more, it is lost: the handler
    goes on, and the worker drains."""
    text = log_lines.line(message.strip(), level="info", logger="celery.apps.worker", as_json=True)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.write(file.fileno(), text.encode())
