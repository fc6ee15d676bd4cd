"""The terms of queues, for core: see `orchestrator.core.queue_terms`."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping

from django.db import connection
from django.db.models import QuerySet

from orchestrator.core.models.prepared import PreparedForIds
from orchestrator.core.queue_terms import QueueTerms
from orchestrator.queues.models import WorkQueue

NEEDED = (
    "name",
    "accepts",
    "paused_at",
    "action__ref",
    "default_priority",
    "deadline_seconds",
    "timeout_seconds",
    "retry_limit",
    "prefetch_buffer",
    "max_running",
    "defer_seconds",
    "defer_pause_seconds",
    "health_check",
)

LOCK_CLASS = 0x4D517565
"""Distinguishes our advisory locks from others in the same database."""


def _rows() -> QuerySet[WorkQueue]:
    return WorkQueue.objects.in_use().select_related("action").only(*NEEDED).order_by()


_named = PreparedForIds(lambda names: _rows().filter(name__in=names), "any-name")


class KnownQueues:
    """Reads the rows of queues."""

    def terms(self, names: Collection[str] | None = None) -> Mapping[str, QueueTerms]:
        rows = list(_rows()) if names is None else _named(names)
        return {row.name: terms_of(row) for row in rows}

    def hold(self, names: Collection[str]) -> None:
        """Take an advisory lock of each until the transaction ends, in the order of their keys, so
        that two who want several cannot deadlock.

        Not a lock of the rows: that needs the right to change them, and executors have none.
        SQLite has one writer at a time, and all of its transactions are writers from their start.
        """
        if connection.vendor != "postgresql":
            return
        keys = sorted({zlib.crc32(name.encode()) - 2**31 for name in names})
        with connection.cursor() as cursor:
            for key in keys:
                cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK_CLASS, key])


def terms_of(queue: WorkQueue) -> QueueTerms:
    """The terms of a queue that is not retired."""
    return QueueTerms(
        name=queue.name,
        refusal="" if queue.accepts else f"the queue {queue.name} accepts nothing: it is closed",
        is_paused=queue.is_paused,
        action_ref=queue.action.ref if queue.action else "",
        priority=queue.default_priority,
        deadline_seconds=queue.deadline_seconds,
        timeout_seconds=queue.timeout_seconds,
        retry_limit=queue.retry_limit,
        prefetch_buffer=queue.prefetch_buffer,
        max_running=queue.max_running,
        defer_seconds=queue.defer_seconds,
        defer_pause_seconds=queue.defer_pause_seconds,
        health_check=queue.health_check,
    )
