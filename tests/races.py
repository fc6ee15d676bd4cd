"""Several that want the same at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection, connections


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each has returned or raised, in a thread with a connection of its own."""
    barrier = threading.Barrier(len(calls), timeout=30)
    outcomes: list[Any] = [None] * len(calls)

    def run(index: int, call: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            barrier.wait()
            outcomes[index] = call()
        except Exception as error:  # noqa: BLE001 - told to the test
            outcomes[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes
