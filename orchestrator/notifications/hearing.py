"""Hearing what other processes tell: the queue of this listener, which goes with its connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import structlog
from kombu import Connection

from orchestrator.core import brokers, declarations, topology

log = structlog.get_logger(__name__)

MOST_MESSAGES = 50_000
LONGEST_PAUSE_SECONDS = 5.0
POLL_SECONDS = 1.0
ASK_AFTER_SECONDS = 10.0

Take = Callable[[dict[str, Any]], None]


class Hearing(threading.Thread):
    """Gives each message to `take`, until `stopping`. While the broker is away, nothing comes."""

    def __init__(self, *, name: str, take: Take, stopping: threading.Event) -> None:
        super().__init__(name="muster-hearing", daemon=True)
        self.listener, self.take, self.stopping = name, take, stopping
        self.problem = "not connected yet"

    def run(self) -> None:
        pause_seconds = 0.25
        while not self.stopping.is_set():
            try:
                with brokers.connection() as link:
                    queue = self._consume(link)
                    pause_seconds = 0.25
                    self._drain(link, queue)
            except Exception as error:  # of any kind: without this thread nothing would be heard
                self.problem = f"broker: {brokers.explain(error)}"
                is_known = isinstance(error, brokers.errors())
                log.warning(
                    "changes are heard of later",
                    error=brokers.explain(error),
                    exc_info=not is_known,
                )
                self.stopping.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    def _consume(self, link: Connection) -> str:
        brokers.ensure_connected(link)
        declarations.declare_on(link)
        channel: Any = link.channel()
        queue = topology.notifications_queue(f"{self.listener}.{uuid4().hex[:8]}")
        channel.queue_declare(
            queue,
            durable=False,
            exclusive=True,
            auto_delete=True,
            # the newest count: what a listener missed, it reads
            arguments={"x-max-length": MOST_MESSAGES},
        )
        channel.queue_bind(queue, topology.notifications_exchange(), "")
        channel.basic_consume(queue, no_ack=True, callback=self._hear)
        self.problem = ""
        log.info("Consumer started", queue=queue, prefetch=0)
        return queue

    def _drain(self, link: Connection, queue: str) -> None:
        """Take what comes. A broker that says nothing for long is asked for the queue: a connection
        whose other end vanished looks like silence."""
        silent_for = 0.0
        while not self.stopping.is_set():
            try:
                link.drain_events(timeout=POLL_SECONDS)
                silent_for = 0.0
            except TimeoutError:
                silent_for += POLL_SECONDS
            if silent_for >= ASK_AFTER_SECONDS:
                with declarations.throw_away(link) as channel:
                    channel.queue_declare(queue, passive=True)
                silent_for = 0.0

    def _hear(self, message: Any) -> None:
        try:
            told = json.loads(message.body)
            if not isinstance(told, dict) or not isinstance(told.get("entity"), str):
                raise TypeError("no message of ours")
        except (ValueError, TypeError, RecursionError) as error:
            log.warning("unreadable notification dropped", error=repr(error))
            return
        self.take(told)
