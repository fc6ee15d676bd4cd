"""Credentials of a worker: read at its start, and in no environment afterwards.

Its subprocesses inherit none. What it needs stays in its memory, which no other process of its user
may read (see `orchestrator.core.memory`).
"""

from __future__ import annotations

import os
import secrets

from django.conf import settings

from orchestrator.core import memory


def forget() -> None:
    """Remove them from the environment. A worker signs nothing: its SECRET_KEY becomes another."""
    for name in memory.credentials():
        del os.environ[name]
    settings.SECRET_KEY = secrets.token_urlsafe(50)
