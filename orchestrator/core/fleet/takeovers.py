"""The decision whether a new process may take the name of a worker, and end the life that another
leads.

It may if that process is gone, or silent: a worker that crashed is restarted at once. It may not
while the process works on this machine, unless somebody says so: what it runs would be lost. A
process of another machine cannot be looked at: it is replaced, as its machine may have been.
"""

from __future__ import annotations

import re
import time
from datetime import datetime

import psutil
import structlog

from orchestrator.core import topology, words
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Worker

log = structlog.get_logger(__name__)


class WorkerRuns(MusterError):
    """Another process of this machine is this worker."""


def require_vacant(worker: Worker, *, host: str, pid: int, now: datetime) -> None:
    """Check that no other process than `pid` of `host`, this machine, is this worker now.

    Raises WorkerRuns.
    """
    if _beats_elsewhere(worker, host=host, now=now) or not _beats(worker, now=now):
        return
    if worker.pid in (None, pid) or not _is_its_process(worker, now=now):
        return
    raise WorkerRuns(
        f"Worker {worker.name} runs already: {_life(worker, now=now)}. Stop it or choose another "
        "name; --replace takes its place, and what it runs is then lost"
    )


def warn_of_another_host(worker: Worker, *, host: str, now: datetime) -> None:
    """Log that this worker is about to be replaced although it beats on another host."""
    if _beats_elsewhere(worker, host=host, now=now):
        log.warning(
            "worker replaced that another host runs; names must be unique",
            worker=worker.name,
            host=worker.host,
            pid=worker.pid,
            heartbeat_age_seconds=_heartbeat_age_seconds(worker, now),
        )


def _beats(worker: Worker, *, now: datetime) -> bool:
    return worker.is_up and worker.is_fresh(now)


def _beats_elsewhere(worker: Worker, *, host: str, now: datetime) -> bool:
    return worker.host != host and _beats(worker, now=now)


def _is_its_process(worker: Worker, *, now: datetime) -> bool:
    """Return True if the process of the worker's last life lives. Another may have its number: it
    began after that life (ages are compared, as the database has a clock of its own), or its
    command line is not that of this worker."""
    assert worker.registered_at is not None
    life_seconds = (now - worker.registered_at).total_seconds()
    try:
        process = psutil.Process(worker.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        age_seconds = time.time() - process.create_time()
        command = " ".join(process.cmdline())
    except psutil.Error:  # gone, or of another user who hides it
        return False
    return age_seconds >= life_seconds and _is_worker(command, worker)


def _is_worker(command: str, worker: Worker) -> bool:
    """Return True for `manage.py worker --name w1`, and for `celery worker -Q` with its queue."""
    marks = (worker.name, topology.worker_queue(worker.pk).name)
    is_named = any(re.search(rf"(?<![\w.-]){re.escape(mark)}(?![\w.-])", command) for mark in marks)
    return is_named and re.search(r"worker|celery", command) is not None


def _life(worker: Worker, *, now: datetime) -> str:
    age = words.span(_heartbeat_age_seconds(worker, now))
    return f"host {worker.host}, pid {worker.pid}, heartbeat {age} ago"


def _heartbeat_age_seconds(worker: Worker, now: datetime) -> float:
    assert worker.heartbeat_at is not None
    return round(max(0.0, (now - worker.heartbeat_at).total_seconds()), 1)
