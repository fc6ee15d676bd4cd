"""Becoming a Celery process: the commands that start services end here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from django.db import connections


def worker_arguments(*, name: str, queues: Sequence[str], pool: str, concurrency: int) -> list[str]:
    """Arguments of `celery worker` that the executor and the workers share.

    Gossip and mingle tell workers of each other, which nothing of ours listens to.
    """
    return [
        "worker",
        # a life of its own: the broker may still hold the control queue of an earlier one
        *("--hostname", f"{name}.{os.getpid()}@%h"),
        *("--queues", ",".join(queues)),
        *("--pool", pool),
        *("--concurrency", str(concurrency)),
        *("--without-gossip", "--without-mingle"),
    ]


def become(arguments: Sequence[str]) -> NoReturn:
    """Replace this process with `celery -A settings ...`: same pid, same signals."""
    connections.close_all()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "settings", *arguments])  # noqa: S606
