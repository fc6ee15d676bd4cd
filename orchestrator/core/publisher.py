"""The only module that sends messages.

There are two ways to send. `send` waits until the broker has confirmed a whole batch: for callers
that acknowledge something afterwards. `send_soon` hands over to a background thread and returns at
once: the row is already committed, and the executor finds it without a message too, only later.

Every message is a Celery task message (protocol 2), so that stock tools understand it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from kombu import Connection
from kombu.exceptions import OperationalError

from orchestrator.core import declarations, topology
from orchestrator.core.errors import MusterError, Unavailable
from orchestrator.core.states import AttemptKey

log = structlog.get_logger(__name__)

SCHEDULE = "muster.schedule"
COMPLETED = "muster.completed"
RUN = "muster.run"
CANCEL = "muster.cancel"

EXECUTION_IDS = "execution_ids"
ATTEMPTS = "attempts"
MOST_ATTEMPTS = 32
"""The most that one dispatch lists. A longer list saves little, and its message is acknowledged
only when the last of its attempts is claimed."""

PERSISTENT = 2

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a body that is not one of our messages."""


class BrokerUnavailable(Unavailable):
    """The broker did not take the messages; the rows they tell of will be found without them."""

    kind = "broker-unavailable"
    title = "The broker did not answer"


@dataclass(frozen=True)
class Message:
    """A task message: ids and the attempt, never state."""

    task: str
    routing_key: str
    kwargs: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid4()))
    expiration_ms: int | None = None
    listed: str = ""
    """The argument that holds ids, in a message about many."""

    def headers(self) -> dict[str, Any]:
        return {
            "lang": "py",
            "task": self.task,
            "id": self.id,
            "root_id": self.id,
            "parent_id": None,
            "group": None,
            "retries": 0,
            "timelimit": [None, None],
            "argsrepr": "()",
            "kwargsrepr": _shown(self.kwargs),
            "ignore_result": True,
        }

    def body(self) -> bytes:
        return json.dumps([[], self.kwargs, {}], separators=(",", ":")).encode()

    def properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {"correlation_id": self.id, "delivery_mode": PERSISTENT}
        if self.expiration_ms is not None:
            properties["expiration"] = str(self.expiration_ms)
        return properties


def requested(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these were accepted."""
    return about_many(SCHEDULE, topology.REQUESTED, execution_ids)


def completed(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these ended."""
    return about_many(COMPLETED, topology.COMPLETED, execution_ids)


def dispatch(
    attempts: Sequence[AttemptKey], *, worker_id: int, ttl_ms: int | None = None
) -> Message:
    """Tell one worker to run these attempts. `ttl_ms` only if it is shorter than the queue's."""
    kwargs: dict[str, Any] = about(attempts[0])
    if len(attempts) > 1:
        kwargs = {ATTEMPTS: [[str(execution_id), number] for execution_id, number in attempts]}
    return Message(
        task=RUN,
        routing_key=topology.dispatch_key(worker_id),
        kwargs=kwargs,
        id=name_of(attempts[0]),
        expiration_ms=ttl_ms,
    )


def dispatched(kwargs: Mapping[str, Any]) -> list[AttemptKey]:
    """Read the attempts that a dispatch names; never none. Raises the errors of UNREADABLE."""
    pairs = (
        kwargs[ATTEMPTS] if ATTEMPTS in kwargs else [(kwargs["execution_id"], kwargs["attempt"])]
    )
    attempts = [(UUID(execution_id), int(number)) for execution_id, number in pairs]
    # a number that no column holds would be an error of each claim that it is in
    if not attempts or not all(0 < number < 2**31 for _, number in attempts):
        raise ValueError("a dispatch of no attempt, or with a number that is none")
    return attempts


def about(attempt: AttemptKey) -> dict[str, Any]:
    """The arguments of a message about one attempt."""
    execution_id, number = attempt
    return {"execution_id": str(execution_id), "attempt": number}


def _shown(kwargs: Mapping[str, Any]) -> str:
    """The arguments as Celery's tools show them: of a list of attempts, the first."""
    if ATTEMPTS not in kwargs:
        return repr(kwargs)
    first, *others = kwargs[ATTEMPTS]
    return f"{{{ATTEMPTS!r}: [{first}, and {len(others)} more]}}"


def name_of(attempt: AttemptKey) -> str:
    """The name of an attempt as a Celery task: the id of its message."""
    execution_id, number = attempt
    return f"{execution_id}.{number}"


def cancel(*, execution_id: UUID, attempt: int, worker_id: int) -> Message:
    """Tell one worker to stop one attempt."""
    return Message(
        task=CANCEL,
        routing_key=topology.cancel_key(worker_id),
        kwargs=about((execution_id, attempt)),
    )


def about_many(
    task: str, routing_key: str, ids: Sequence[UUID], *, listed: str = EXECUTION_IDS
) -> list[Message]:
    """Build messages that name all of these ids, a batch in each."""
    size: int = settings.MUSTER.batch_size
    return [
        Message(
            task=task,
            routing_key=routing_key,
            kwargs={listed: [str(id) for id in ids[start : start + size]]},
            listed=listed,
        )
        for start in range(0, len(ids), size)
    ]


# --- sending with confirmation --------------------------------------------------


def connection() -> Connection:
    """Open a connection to the broker, with time limits so that a stalled broker is an error."""
    limit = settings.MUSTER.publish_timeout_seconds
    return Connection(
        settings.BROKER_URL,
        ssl=tls(),
        connect_timeout=limit,
        transport_options={"read_timeout": limit, "write_timeout": limit},
    )


def tls() -> dict[str, Any] | bool:
    """The TLS arguments of one connection, which adds the name that it connects to."""
    arguments: dict[str, Any] | bool = settings.BROKER_TLS
    return dict(arguments) if isinstance(arguments, dict) else arguments


def ensure_connected(link: Connection) -> None:
    """Connect within the time limit, if not connected yet. Raises the errors of the broker's
    library."""
    limit_seconds = settings.MUSTER.publish_timeout_seconds
    link.ensure_connection(max_retries=1, interval_start=0, timeout=int(limit_seconds) or 1)


def send(messages: Sequence[Message]) -> list[Message]:
    """Publish a batch and wait for its confirmation; returns the messages for which there is no
    queue.

    Raises BrokerUnavailable after a second attempt on a new connection. The broker may still have
    accepted some messages: their receivers must be safe to run twice.
    """
    if not messages:
        return []
    try:
        return _lane().send(messages)
    except errors():
        _drop_lane()  # it may just be an idle connection that the broker closed
    try:
        return _lane().send(messages)
    except errors() as error:
        _drop_lane()
        raise BrokerUnavailable(f"{len(messages)} messages not sent: {error!r}") from error


def make_whole(routing_keys: Iterable[str]) -> None:
    """Declare the queues of returned messages, with exchanges and bindings, as somebody has deleted
    one of them. Raises BrokerUnavailable, and TopologyDiffers.
    """
    specs = topology.needed_by(routing_keys)
    try:
        with connection() as link:
            declarations.declare(link, specs)
    except errors() as error:
        raise BrokerUnavailable(f"queues not declared: {error!r}") from error
    log.warning("queues declared again", queues=[spec.name for spec in specs])


class _Lane:
    """A connection that waits for the confirms of a whole batch, not of each message."""

    channel: Any
    """The channel of py-amqp, or of the embedded broker, which behaves the same."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        declarations.declare_on(link)
        self.channel = link.default_channel
        self.channel.confirm_select()
        self.channel.events["basic_ack"].add(self._on_ack)
        self.channel.events["basic_nack"].add(self._on_nack)
        self.channel.events["basic_return"].add(self._on_return)
        # the embedded broker commits a batch at once; RabbitMQ pipelines by itself
        self.one_commit = getattr(self.channel, "transaction", contextlib.nullcontext)
        self.last_tag = 0
        self.unconfirmed: set[int] = set()
        self.refused = False
        self.returned: set[str] = set()

    def send(self, messages: Sequence[Message]) -> list[Message]:
        """Publish, wait for the confirms; returns the unroutable messages."""
        self.returned.clear()
        self.refused = False
        with self.one_commit():
            for message in messages:
                self._publish(message)
        until = time.monotonic() + settings.MUSTER.publish_timeout_seconds
        while self.unconfirmed:
            # raises TimeoutError when a stalled broker does not answer
            self.link.drain_events(timeout=max(0.01, until - time.monotonic()))
        if self.refused:
            raise OperationalError("the broker refused (nack) a message")
        return [message for message in messages if message.id in self.returned]

    def _publish(self, message: Message) -> None:
        prepared = self.channel.prepare_message(
            message.body(),
            content_type="application/json",
            content_encoding="utf-8",
            headers=message.headers(),
            properties=message.properties(),
        )
        self.last_tag += 1  # the broker counts the same way, from 1 on each channel
        self.unconfirmed.add(self.last_tag)
        self.channel.basic_publish(
            prepared,
            exchange=topology.executions_exchange(),
            routing_key=message.routing_key,
            mandatory=True,
        )

    def _on_ack(self, delivery_tag: int, multiple: bool) -> None:
        if multiple:
            self.unconfirmed = {tag for tag in self.unconfirmed if tag > delivery_tag}
        else:
            self.unconfirmed.discard(delivery_tag)

    def _on_nack(self, delivery_tag: int, multiple: bool) -> None:
        self.refused = True
        self._on_ack(delivery_tag, multiple)

    def _on_return(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:
        self.returned.add(message.headers["id"])


_local = threading.local()


def _lane() -> _Lane:
    """This thread's connection; a forked child never shares its parent's."""
    if getattr(_local, "pid", None) != os.getpid():
        _local.lane, _local.pid = None, os.getpid()
    if _local.lane is None:
        link = connection()
        ensure_connected(link)
        _local.lane = _Lane(link)
    return _local.lane  # type: ignore[no-any-return]


def _drop_lane() -> None:
    """Forget the connection: after an error py-amqp can no longer match confirms to messages."""
    lane, _local.lane = getattr(_local, "lane", None), None
    if lane is not None:
        try:
            lane.link.collect()
        except errors():
            log.debug("broker connection did not close cleanly", exc_info=True)


@cache
def errors() -> tuple[type[Exception], ...]:
    """Errors of the broker's library when the broker is away, stalled or refuses."""
    link = Connection(settings.BROKER_URL)
    return (*link.connection_errors, *link.channel_errors, OSError, OperationalError)


# --- sending soon --------------------------------------------------------------------------------


PAUSE_SECONDS = 0.01
"""The least time between two batches of the relay: messages in between are sent together. The first
after a pause goes at once."""


class _Relay:
    """A thread that publishes the messages given to it, all that have gathered at once."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.is_sending = True
        """False if the last batch was not sent."""
        self.waiting: queue.Queue[Message] = queue.Queue(maxsize=20_000)
        threading.Thread(target=self._run, name="muster-relay", daemon=True).start()

    def put(self, messages: Iterable[Message]) -> None:
        for message in messages:
            try:
                self.waiting.put_nowait(message)
            except queue.Full:
                log.warning("hint dropped, the relay is full", task=message.task)
                return

    def flush(self, timeout_seconds: float) -> bool:
        until = time.monotonic() + timeout_seconds
        while self.waiting.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.005)
        return not self.waiting.unfinished_tasks

    def _run(self) -> None:
        next_at = 0.0
        while True:
            batch = [self.waiting.get()]
            time.sleep(max(0.0, next_at - time.monotonic()))
            while len(batch) < settings.MUSTER.batch_size:
                try:
                    batch.append(self.waiting.get_nowait())
                except queue.Empty:
                    break
            sent = False
            try:
                _send_hints(_merged(batch))
                sent = True
            except MusterError as error:
                log.warning("hints dropped, the sweep will find the rows", error=error)
            except Exception:
                log.exception("hints dropped, the sweep will find the rows")
            self.is_sending = sent
            next_at = time.monotonic() + PAUSE_SECONDS
            for _ in batch:
                self.waiting.task_done()


def _send_hints(messages: Sequence[Message]) -> None:
    """Send; declare the missing queues of returned messages, and send these again.

    Not those of a worker's work: it may be retired, and have no queue on purpose. The executor, who
    finds such dispatches without an answer, can tell.
    """
    missing = [message for message in send(messages) if message.task != RUN]
    if missing:
        make_whole(message.routing_key for message in missing)
        send(missing)


def _merged(batch: Sequence[Message]) -> list[Message]:
    """Join messages that list ids by task: one message about forty executions costs no more than
    one."""
    merged: list[Message] = []
    ids: dict[tuple[str, str, str], list[UUID]] = {}
    for message in batch:
        if not message.listed:
            merged.append(message)
            continue
        about = (message.task, message.routing_key, message.listed)
        ids.setdefault(about, []).extend(message.kwargs[message.listed])
    for (task, routing_key, listed), each in ids.items():
        merged.extend(about_many(task, routing_key, each, listed=listed))
    return merged


_relay: _Relay | None = None
_relay_lock = threading.Lock()


def send_soon(messages: Iterable[Message]) -> None:
    """Publish in the background and return at once. Call it after the commit."""
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
