"""Telling the notifiers: a message to all of them, without a confirm, from a thread of its own.

A message names a feed whose history has news, or lists some ids of which no history says it. It
keeps nobody waiting and is lost if the broker is away: histories are read without it, too.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import structlog
from kombu import Connection

from orchestrator.core import brokers, declarations, topology
from orchestrator.core.news import News

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.02
"""The least time between two messages of a process about the same history."""
PAUSE_AFTER_ERROR_SECONDS = 1.0
MOST_IDS = 20
"""In a message, which stays below a kilobyte."""
MOST_WAITING = 5_000
TRANSIENT = 1


class Waker:
    """Publishes what the process tells; one for each process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._entities: set[str] = set()
        self._listed: deque[dict[str, Any]] = deque(maxlen=MOST_WAITING)
        self._is_due = threading.Event()
        self._numbers = itertools.count(1)
        self._link: Connection | None = None
        self._channel: Any = None
        threading.Thread(target=self._run, name="muster-waker", daemon=True).start()

    def tell(self, news: News) -> None:
        """Return at once; the message is sent soon."""
        if news.is_in_history:
            self._entities.add(news.feed.entity)
        else:
            self._listed.extend(_lists(news.feed.entity, news.ids, news.state, news.at))
        self._is_due.set()

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            self._is_due.clear()
            try:
                self._send()
            except brokers.errors() as error:
                self._lose(error)
                time.sleep(PAUSE_AFTER_ERROR_SECONDS)
            except Exception:
                log.exception("notifiers hear of changes later")
                time.sleep(PAUSE_AFTER_ERROR_SECONDS)
            time.sleep(PAUSE_SECONDS)

    def _send(self) -> None:
        # a set that is swapped is added to by nobody
        entities, self._entities = self._entities, set()
        messages: list[dict[str, Any]] = [{"entity": entity} for entity in sorted(entities)]
        while self._listed:
            messages.append(self._listed.popleft())
        channel = self._connected()
        for message in messages:
            message["seq"] = next(self._numbers)
            body = json.dumps(message, separators=(",", ":"))
            channel.basic_publish(
                channel.prepare_message(
                    body, None, "application/json", "utf-8", {}, {"delivery_mode": TRANSIENT}
                ),
                exchange=topology.notifications_exchange(),
                routing_key="",
            )

    def _connected(self) -> Any:
        if self._channel is None:
            self._link = brokers.connection()
            brokers.ensure_connected(self._link)
            declarations.declare_on(self._link)
            self._channel = self._link.channel()
        return self._channel

    def _lose(self, error: Exception) -> None:
        log.warning("notifiers hear of changes later", error=brokers.explain(error))
        link, self._link, self._channel = self._link, None, None
        if link is not None:
            try:
                link.collect()
            except brokers.errors():
                log.debug("broker connection did not close cleanly", exc_info=True)


def _lists(
    entity: str, ids: Sequence[Any] | Any, state: str, at: datetime
) -> Iterator[dict[str, Any]]:
    texts = [str(id) for id in ids]
    for start in range(0, len(texts), MOST_IDS):
        yield {
            "entity": entity,
            "ids": texts[start : start + MOST_IDS],
            "state": state,
            "at": at.isoformat(),
        }


_waker: Waker | None = None
_lock = threading.Lock()


def tell(news: News) -> None:
    """Tell all notifiers, in the background; called after a commit."""
    global _waker
    with _lock:
        # a forked child has none of its parent's threads
        if _waker is None or _waker.pid != os.getpid():
            _waker = Waker()
        waker = _waker
    waker.tell(news)
