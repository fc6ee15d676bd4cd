"""Rows that another session holds, as an operator does with `SELECT ... FOR UPDATE` in psql."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.db import connection, connections, transaction

PATIENCE_SECONDS = 30.0


def wait_for_waiter(is_over: Callable[[], bool]) -> None:
    """Return as soon as some session waits for a lock, or it is over."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and not is_over():
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return


class Lock:
    """Rows of one table that another thread's transaction holds until it is released."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._is_held, self._release = threading.Event(), threading.Event()
        self._holder = threading.Thread(target=self._hold, args=[rows])
        self._watcher = threading.Thread(target=self._release_when_waited_for)

    def acquire(self) -> None:
        self._holder.start()
        assert self._is_held.wait(PATIENCE_SECONDS)

    def release(self) -> None:
        self._release.set()
        self._holder.join(PATIENCE_SECONDS)
        if self._watcher.ident is not None:
            self._watcher.join(PATIENCE_SECONDS)

    def release_when_waited_for(self) -> None:
        """Release it as soon as some session waits for a lock."""
        self._watcher.start()

    def _hold(self, rows: Sequence[Any]) -> None:
        ids = [row.pk for row in rows]
        with transaction.atomic():
            assert len(type(rows[0]).objects.filter(pk__in=ids).select_for_update()) == len(ids)
            self._is_held.set()
            self._release.wait(PATIENCE_SECONDS)
        connections.close_all()

    def _release_when_waited_for(self) -> None:
        wait_for_waiter(self._release.is_set)
        self._release.set()
        connections.close_all()


@contextlib.contextmanager
def held(*rows: Any) -> Iterator[Lock]:
    """Another session holds these rows until the block ends, or the lock is released."""
    lock = Lock(rows)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()
