"""Send messages in the background, for who needs no confirm.

The row is already committed, and the executor finds it without a message, only later: a message
that is lost here is a hint that is lost.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Iterable, Sequence

import structlog
from django.conf import settings

from orchestrator.core import brokers, publisher
from orchestrator.core.errors import MusterError
from orchestrator.core.lanes import Lane
from orchestrator.core.messages import RUN, Message, about_many

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.01
"""The least time between two batches of the relay: messages in between are sent together. The first
after a pause goes at once."""


class _Relay:
    """A thread that publishes the messages given to it, all that have gathered at once.

    While it has nothing to do, the dispatch of an idle installation is published by whoever has it:
    to wake a thread takes longer. Its confirm is awaited here all the same.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.is_sending = True
        """False if the last batch was not sent."""
        self.waiting: queue.Queue[Message] = queue.Queue(maxsize=20_000)
        self._next_at = 0.0
        self._using = threading.Lock()
        """Held by who uses the thread's connection. Nobody but the thread waits for it."""
        self._lane: Lane | None = None
        """That connection, if it is known to work."""
        self._posted: Message | None = None
        """The message that another thread has published on it; it is in `waiting` as well."""
        threading.Thread(target=self._run, name="muster-relay", daemon=True).start()

    def put(self, messages: Iterable[Message]) -> None:
        messages = list(messages)
        # a dispatch that comes alone is for a worker that waits for it
        is_awaited = len(messages) == 1 and messages[0].task == RUN
        if is_awaited and self._using.acquire(blocking=False):
            try:
                self._post(messages[0])
                self._enqueue(messages)
            finally:
                self._using.release()
        else:
            self._enqueue(messages)

    def _enqueue(self, messages: Iterable[Message]) -> None:
        for message in messages:
            try:
                self.waiting.put_nowait(message)
            except queue.Full:
                log.warning("hint dropped, the relay is full", task=message.task)
                return

    def _post(self, message: Message) -> None:
        """Publish this in the calling thread, if the relay is at rest."""
        lane = self._lane
        is_resting = self._posted is None and time.monotonic() >= self._next_at
        if lane is None or not is_resting or not brokers.is_silent(lane.link):
            return
        try:
            lane.post([message.raw()])
            self._posted = message
        except Exception:  # its row is committed; it is sent again, on a new connection
            log.debug("not published at once", exc_info=True)
            self._lane = None

    def flush(self, timeout_seconds: float) -> bool:
        until = time.monotonic() + timeout_seconds
        while self.waiting.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.005)
        return not self.waiting.unfinished_tasks

    def _run(self) -> None:
        while True:
            self._send_next()

    def _send_next(self) -> None:
        batch = [self.waiting.get()]
        with self._using:
            posted, self._posted = self._posted, None
            if self._lane is None:
                publisher.drop_lane()
            if posted is None:
                time.sleep(max(0.0, self._next_at - time.monotonic()))
            else:
                self._send([posted], are_posted=True)
            while len(batch) < settings.MUSTER.batch_size:
                try:
                    batch.append(self.waiting.get_nowait())
                except queue.Empty:
                    break
            if unsent := [message for message in batch if message is not posted]:
                self._send(unsent)
            self._next_at = time.monotonic() + PAUSE_SECONDS
            self._lane = publisher.known_lane() if self.is_sending else None
        for _ in batch:
            self.waiting.task_done()

    def _send(self, messages: Sequence[Message], *, are_posted: bool = False) -> None:
        sent = False
        try:
            _send_hints(_merged(messages), are_posted=are_posted)
            sent = True
        except MusterError as error:
            log.warning("hints dropped, the sweep will find the rows", error=error)
        except Exception:
            log.exception("hints dropped, the sweep will find the rows")
        self.is_sending = sent


def _send_hints(messages: Sequence[Message], *, are_posted: bool) -> None:
    """Send; declare the missing queues of returned messages, and send these again.

    Not those of a worker's work: it may be retired, and have no queue on purpose. The executor, who
    finds such dispatches without an answer, can tell.
    """
    returned = publisher.send(messages, are_posted=are_posted)
    missing = [message for message in returned if message.task != RUN]
    if missing:
        publisher.make_whole(message.routing_key for message in missing)
        publisher.send(missing)


def _merged(batch: Sequence[Message]) -> list[Message]:
    """Join messages that list ids by task: one message about forty executions costs no more than
    one."""
    merged: list[Message] = []
    ids: dict[tuple[str, str, str, str], list[str]] = {}
    for message in batch:
        if not message.listed:
            merged.append(message)
            continue
        about = (message.task, message.routing_key, message.listed, message.exchange)
        ids.setdefault(about, []).extend(message.kwargs[message.listed])
    for (task, routing_key, listed, exchange), each in ids.items():
        merged.extend(about_many(task, routing_key, each, listed=listed, exchange=exchange))
    return merged


_relay: _Relay | None = None
_relay_lock = threading.Lock()


def send_soon(messages: Iterable[Message]) -> None:
    """Publish in the background; a dispatch that comes alone at once, if that has nothing to do.
    Waits for no confirm. Call it after the commit."""
    global _relay
    with _relay_lock:
        if _relay is None or _relay.pid != os.getpid():
            _relay = _Relay()
        relay = _relay
    relay.put(messages)


def is_sending() -> bool:
    """Return False if this process could not send the last messages that it was given."""
    return _relay is None or _relay.is_sending


@atexit.register
def flush(timeout_seconds: float | None = None) -> bool:
    """Wait until all background messages are sent; returns False when time ran out first."""
    if _relay is None or _relay.pid != os.getpid():
        return True
    return _relay.flush(timeout_seconds or settings.MUSTER.publish_timeout_seconds)
