"""The only module that sends messages.

There are three ways to send. `send` waits until the broker has confirmed a whole batch: for callers
that acknowledge something afterwards. `send_soon` hands over to a background thread, and waits for
no confirm: the row is already committed, and the executor finds it without a message, only later.
`send_raw` is for programs that are not ours, also on other brokers: it says of each message what
the broker did with it.

Every message of ours is a Celery task message (protocol 2), so that stock tools understand it.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import structlog
from amqp.exceptions import ChannelError
from django.conf import settings
from kombu.exceptions import OperationalError

from orchestrator.core import brokers, declarations, lanes, topology
from orchestrator.core.brokers import connection as connection
from orchestrator.core.brokers import ensure_connected as ensure_connected
from orchestrator.core.brokers import errors as errors
from orchestrator.core.errors import MusterError, Unavailable
from orchestrator.core.lanes import Fate as Fate
from orchestrator.core.lanes import Lane
from orchestrator.core.lanes import RawMessage as RawMessage
from orchestrator.core.states import AttemptKey

log = structlog.get_logger(__name__)

SCHEDULE = "muster.schedule"
COMPLETED = "muster.completed"
RUN = "muster.run"
CANCEL = "muster.cancel"
STATUS_CHANGED = "muster.status_changed"

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
    exchange: str = field(default_factory=topology.executions_exchange)

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
        properties: dict[str, Any] = {
            "content_type": "application/json",
            "content_encoding": "utf-8",
            "correlation_id": self.id,
            "delivery_mode": PERSISTENT,
        }
        if self.expiration_ms is not None:
            properties["expiration"] = str(self.expiration_ms)
        return properties

    def raw(self) -> RawMessage:
        return RawMessage(
            self.body(), self.routing_key, self.exchange, self.headers(), self.properties()
        )


def requested(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these were accepted."""
    return about_many(SCHEDULE, topology.REQUESTED, execution_ids)


def completed(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these ended."""
    return about_many(COMPLETED, topology.COMPLETED, execution_ids)


def status_changed(execution_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that the statuses of these changed: see `executions.status_news`."""
    return about_many(STATUS_CHANGED, topology.STATUS_CHANGED, execution_ids)


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
    task: str,
    routing_key: str,
    ids: Sequence[UUID],
    *,
    listed: str = EXECUTION_IDS,
    exchange: str = "",
) -> list[Message]:
    """Build messages that name all of these ids, a batch in each."""
    size: int = settings.MUSTER.batch_size
    return [
        Message(
            task=task,
            routing_key=routing_key,
            kwargs={listed: [str(id) for id in ids[start : start + size]]},
            listed=listed,
            exchange=exchange or topology.executions_exchange(),
        )
        for start in range(0, len(ids), size)
    ]


# --- sending with confirmation --------------------------------------------------


def connect_soon() -> None:
    """Declare the common part in the background, so that it is there before the first message. For
    a process that only publishes; a broker that is away is no error."""
    threading.Thread(target=_declare_common, name="muster-declare", daemon=True).start()


def _declare_common() -> None:
    try:
        with connection() as link:
            ensure_connected(link)
            declarations.declare_on(link)
    except errors() as error:
        log.warning(
            "broker not reachable, nothing accepted waits for it", error=brokers.explain(error)
        )


def send(messages: Sequence[Message], *, are_posted: bool = False) -> list[Message]:
    """Publish a batch and wait for its confirmation; returns the messages for which there is no
    queue. `are_posted`: they were published on this thread's connection just now.

    Raises BrokerUnavailable after a second attempt on a new connection. The broker may still have
    accepted some messages: their receivers must be safe to run twice.
    """
    if not messages:
        return []
    try:
        fates = _deliver(
            [message.raw() for message in messages], brokers.DEFAULT, are_posted=are_posted
        )
    except errors() as error:
        raise BrokerUnavailable(
            f"{len(messages)} messages not sent: {brokers.explain(error)}"
        ) from error
    refused = next((fate.reason for fate in fates if fate.kind == lanes.REFUSED), None)
    if refused is not None:
        raise BrokerUnavailable(f"{len(messages)} messages not sent: {refused}")
    return [message for message, fate in zip(messages, fates, strict=True) if not fate.is_taken]


def send_raw(messages: Sequence[RawMessage], *, broker: str = brokers.DEFAULT) -> list[Fate]:
    """Publish a batch to a broker and wait once for its confirms; returns the fate of each message,
    in their order. What is not `taken` may be sent again.

    A message that makes RabbitMQ close the channel (no such exchange, no permission, too large, a
    user id that is another's) is found by halves and refused alone. Raises UnknownBroker, and
    BrokerUnavailable after a second attempt on a new connection: then nothing is known of any
    message, and a copy of each may have been taken.
    """
    if not messages:
        return []
    try:
        return _deliver(messages, broker)
    except ChannelError as error:
        if len(messages) == 1:
            return [Fate(lanes.REFUSED, str(error), is_final=True)]
    except errors() as error:
        raise BrokerUnavailable(
            f"{len(messages)} messages not sent: {brokers.explain(error, broker)}"
        ) from error
    half = len(messages) // 2
    return [
        *send_raw(messages[:half], broker=broker),
        *send_raw(messages[half:], broker=broker),
    ]


def _deliver(
    messages: Sequence[RawMessage], broker: str, *, are_posted: bool = False
) -> list[Fate]:
    """Publish on this thread's connection, and once more on a new one: the old one may just have
    been idle, and closed by the broker. Raises the errors of the broker's library."""
    try:
        lane = _lane(broker)
        return lane.confirmed() if are_posted else lane.send(messages)
    except errors():
        _drop_lane(broker)
    try:
        return _lane(broker).send(messages)
    except errors():
        _drop_lane(broker)
        raise


def make_whole(routing_keys: Iterable[str]) -> None:
    """Declare the queues of returned messages, with exchanges and bindings, as somebody has deleted
    one of them. Raises BrokerUnavailable, and TopologyDiffers.
    """
    specs = topology.needed_by(routing_keys)
    try:
        with connection() as link:
            declarations.declare(link, specs)
    except errors() as error:
        raise BrokerUnavailable(f"queues not declared: {brokers.explain(error)}") from error
    log.warning("queues declared again", queues=[spec.name for spec in specs])


_local = threading.local()


def _lane(broker: str = brokers.DEFAULT) -> Lane:
    """This thread's connection to a broker; a forked child never shares its parent's."""
    if getattr(_local, "pid", None) != os.getpid():
        _local.lanes, _local.pid = {}, os.getpid()
    if broker not in _local.lanes:
        _local.lanes[broker] = _open_lane(broker)
    return _local.lanes[broker]  # type: ignore[no-any-return]


def _open_lane(broker: str) -> Lane:
    link = connection(broker)
    try:
        ensure_connected(link)
        if broker == brokers.DEFAULT:
            declarations.declare_on(link)
    except ChannelError as error:  # a login or a declaration, and no message, was refused
        raise OperationalError(str(error)) from error
    return Lane(link)


def _known_lane(broker: str = brokers.DEFAULT) -> Lane | None:
    """This thread's connection to a broker, if it has one."""
    lanes: dict[str, Lane] = getattr(_local, "lanes", {})
    return lanes.get(broker)


def _drop_lane(broker: str = brokers.DEFAULT) -> None:
    """Forget the connection: after an error py-amqp can no longer match confirms to messages."""
    lane = getattr(_local, "lanes", {}).pop(broker, None)
    if lane is not None:
        try:
            lane.link.collect()
        except errors():
            log.debug("broker connection did not close cleanly", exc_info=True)


# --- sending soon --------------------------------------------------------------------------------


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
        """What another thread has published on it; it is in `waiting` as well."""
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
                _drop_lane()
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
            self._lane = _known_lane() if self.is_sending else None
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
    returned = send(messages, are_posted=are_posted)
    missing = [message for message in returned if message.task != RUN]
    if missing:
        make_whole(message.routing_key for message in missing)
        send(missing)


def _merged(batch: Sequence[Message]) -> list[Message]:
    """Join messages that list ids by task: one message about forty executions costs no more than
    one."""
    merged: list[Message] = []
    ids: dict[tuple[str, str, str, str], list[UUID]] = {}
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
