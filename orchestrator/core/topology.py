"""All exchanges, queues, bindings and arguments, with their owners. Names come only from here.

A service declares the common part and the queues that it consumes, nothing else. Every
declaration is idempotent, so services start in any order. `docs/topology.md` is generated from
these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from kombu import Exchange, Queue

from orchestrator.core import frame

DEFAULT_NAMESPACE = "muster"
CLASSIC = "classic"
QUORUM_ARGUMENTS = {"x-delivery-limit": 1_000_000_000}
"""In effect no limit. RabbitMQ 4.0 and later drop what comes back to a quorum queue for the 21st
time (https://www.rabbitmq.com/docs/quorum-queues), as it does while the database is away. Their
word for none, -1, is a limit below the first delivery in 3.x."""

REQUESTED = "execution.requested"
COMPLETED = "execution.completed"
STATUS_CHANGED = "execution.status.changed"

EXECUTIONS = "executions"
CANCEL = "cancel"
"""The purposes of a worker's two queues, as in their names."""


@dataclass(frozen=True)
class QueueSpec:
    """One row of the topology: a queue, its binding, and its consumer."""

    name: str
    exchange: str
    routing_key: str
    owner: str
    purpose: str
    arguments: dict[str, Any] = field(default_factory=dict)
    exchange_type: str = "topic"

    def queue(self) -> Queue:
        """The kombu queue: durable, never auto-deleted (deleting a queue dead-letters nothing).

        Its exchange is not declared with it: only executors may, where each service has a user of
        its own.
        """
        exchange = Exchange(self.exchange, type=self.exchange_type, durable=True, no_declare=True)
        return Queue(
            self.name,
            exchange=exchange if self.exchange else Exchange("", type="direct"),
            routing_key=self.routing_key,
            queue_arguments=dict(self.arguments),
            durable=True,
            auto_delete=False,
        )


def _ns(name: str) -> str:
    return f"{settings.MUSTER.namespace}.{name}"


def _of_worker(worker_id: int | str, what: str) -> str:
    """The name of a worker's queue. It leaves out the default namespace, for compatibility."""
    name = f"worker.{worker_id}.{what}"
    return name if settings.MUSTER.namespace == DEFAULT_NAMESPACE else _ns(name)


def _worker_id_in(name: str, what: str) -> str | None:
    """The worker's id in the name of its queue, as text; None for any other name, and for those of
    another namespace."""
    before, _, after = _of_worker("#", what).partition("#")
    match = re.fullmatch(rf"{re.escape(before)}([0-9]+){re.escape(after)}", name)
    return match[1] if match else None


def executions_exchange() -> str:
    """The exchange of executions: requests, dispatches, cancels, completions."""
    return _ns("executions")


def events_exchange() -> str:
    """The exchange of events: what happened outside, that rules may answer."""
    return _ns("events")


def notifications_exchange() -> str:
    """The exchange of notifications: hints for who listens. Each notifier gets all of them."""
    return _ns("notifications")


def dead_letter_exchange() -> str:
    """The exchange of dead letters. A topic exchange: with a direct one, `#` would match
    nothing."""
    return _ns("dlx")


def dispatch_key(worker_id: int | str) -> str:
    """Routing key of one worker's dispatch messages."""
    return f"execution.dispatch.worker.{worker_id}"


def cancel_key(worker_id: int | str) -> str:
    """Routing key of one worker's cancel messages."""
    return f"execution.cancel.worker.{worker_id}"


TO_A_WORKER = re.compile(r"execution\.(?:dispatch|cancel)\.worker\.(?P<worker_id>[0-9]+)")


def _arguments(own: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a queue: its own, and those of a type that is not RabbitMQ's default."""
    kind = settings.MUSTER.queue_type
    return {**own} if kind == CLASSIC else {"x-queue-type": kind, **QUORUM_ARGUMENTS, **own}


def _dead_lettering() -> dict[str, Any]:
    return {"x-dead-letter-exchange": dead_letter_exchange()}


def requests_queue() -> QueueSpec:
    return hot_queue(
        "execution.requests.queue",
        routing_key=REQUESTED,
        purpose="accepted executions that want a worker",
    )


def completed_queue() -> QueueSpec:
    return hot_queue(
        "execution.completed.queue",
        routing_key=COMPLETED,
        purpose="executions that ended: slots are free, followers may start",
    )


def hot_queue(name: str, *, routing_key: str, purpose: str, exchange: str = "") -> QueueSpec:
    """A queue of an app that executors take in batches: see `frame.ExecutorPart`. Without
    `exchange`, it is bound to that of executions."""
    return QueueSpec(
        name=_ns(name),
        exchange=exchange or executions_exchange(),
        routing_key=routing_key,
        owner="executor",
        purpose=purpose,
        arguments=_arguments(_dead_lettering()),
    )


def hot_queues() -> list[QueueSpec]:
    """The queues that each executor takes in batches: its own, and those of the installed apps."""
    return [
        requests_queue(),
        completed_queue(),
        *(part.queue.spec() for part in frame.collect(lambda app: app.executor_parts)),
    ]


def maintenance_queue() -> QueueSpec:
    return QueueSpec(
        name=_ns("maintenance.queue"),
        exchange="",
        routing_key=_ns("maintenance.queue"),
        owner="executor",
        purpose="what beat schedules",
        # ticks that nobody fetched are worthless: keep the newest, dead-letter none
        arguments=_arguments({"x-max-length": 1_000}),
        exchange_type="direct",
    )


def dead_letter_queue() -> QueueSpec:
    return QueueSpec(
        name=_ns("dlx.queue"),
        exchange=dead_letter_exchange(),
        routing_key="#",
        owner="executor",
        purpose="dead letters, until the drain has settled what they were about",
        arguments=_arguments({"x-message-ttl": settings.MUSTER.dlx_queue_ttl_ms}),
    )


def worker_queue(worker_id: int | str) -> QueueSpec:
    """The dispatch queue of one worker: its TTL is the longest wait for that worker."""
    return QueueSpec(
        name=_of_worker(worker_id, EXECUTIONS),
        exchange=executions_exchange(),
        routing_key=dispatch_key(worker_id),
        owner="worker",
        purpose="executions dispatched to that worker",
        arguments=_arguments(
            {"x-message-ttl": settings.MUSTER.worker_queue_ttl_ms} | _dead_lettering()
        ),
    )


def cancel_queue(worker_id: int | str) -> QueueSpec:
    return QueueSpec(
        name=_of_worker(worker_id, CANCEL),
        exchange=executions_exchange(),
        routing_key=cancel_key(worker_id),
        owner="worker",
        purpose="running executions that the worker has to stop",
        arguments=_arguments(_dead_lettering()),
    )


def told_queue(name: str) -> str:
    """The name of the queue in which one executor with gates hears of ends. It is exclusive, and
    goes with its connection."""
    return _ns(f"told.{name}")


def notifications_queue(name: str) -> str:
    """The name of the queue of one notifier. It is exclusive, and goes with its connection: a
    shared one would give each notifier a part of what its clients wait for."""
    return _ns(f"notifications.queue.{name}")


def shared_queues() -> list[QueueSpec]:
    """The queues that exist once in an installation."""
    return [*hot_queues(), maintenance_queue(), dead_letter_queue()]


def worker_queues(worker_id: int | str) -> list[QueueSpec]:
    """The queues that exist once for each worker."""
    return [worker_queue(worker_id), cancel_queue(worker_id)]


def needed_by(routing_keys: Iterable[str]) -> list[QueueSpec]:
    """The queues that messages with these routing keys need."""
    matches = [TO_A_WORKER.fullmatch(key) for key in routing_keys]
    worker_ids = {match["worker_id"] for match in matches if match}
    shared = [] if all(matches) else hot_queues()
    return [*shared, *(spec for id in sorted(worker_ids) for spec in worker_queues(id))]


def common() -> list[QueueSpec]:
    """Queues that every service declares first: without a dead letter exchange, messages are
    lost."""
    return [dead_letter_queue()]


def find(name: str) -> QueueSpec | None:
    """Find the row of a queue by its name, also of workers that are not known yet."""
    for spec in shared_queues():
        if spec.name == name:
            return spec
    if worker_id := _worker_id_in(name, EXECUTIONS):
        return worker_queue(worker_id)
    if worker_id := _worker_id_in(name, CANCEL):
        return cancel_queue(worker_id)
    return None


def worker_id_of(queue_name: str) -> int | None:
    """The worker whose dispatch queue this is, or None."""
    worker_id = _worker_id_in(queue_name, EXECUTIONS)
    return int(worker_id) if worker_id else None


def declare(channel: Any, specs: Iterable[QueueSpec], *, with_common: bool = True) -> None:
    """Declare the common part and these queues with their exchanges and bindings. Without the
    common part, all exchanges and these queues.

    Raises amqp's PreconditionFailed (406) where a queue exists with other arguments.
    """
    declare_exchanges(channel)
    for spec in [*(common() if with_common else ()), *specs]:
        spec.queue()(channel).declare()


def names_of_common(*, with_queues: bool = True) -> list[str]:
    """The exchanges and queues of the common part; its exchanges alone without its queues."""
    return [*exchange_purposes(), *(spec.name for spec in common() if with_queues)]


def look(channel: Any, name: str) -> None:
    """Look at an exchange or a queue of the common part, and change nothing. Raises amqp's
    NotFound, which closes the channel."""
    if name in exchange_purposes():
        kind, _ = exchange_purposes()[name]
        channel.exchange_declare(name, kind, passive=True, durable=True, auto_delete=False)
    else:
        channel.queue_declare(name, passive=True)


def unbind_former(channel: Any, worker_id: int | str) -> None:
    """Remove the bindings of queues with their former names, which had no namespace.

    The queues are not deleted: in the default namespace, somebody else's worker has the same names.
    """
    for spec in worker_queues(worker_id):
        former = spec.name.removeprefix(_ns(""))
        if former != spec.name:
            channel.queue_unbind(former, spec.exchange, spec.routing_key)


def declare_exchanges(channel: Any) -> None:
    """Declare all exchanges."""
    for name, (kind, _) in exchange_purposes().items():
        Exchange(name, type=kind, durable=True)(channel).declare()


def declare_dead_letters(channel: Any) -> None:
    """Declare what the dead letters of a broker need: their exchange and their queue."""
    kind, _ = exchange_purposes()[dead_letter_exchange()]
    Exchange(dead_letter_exchange(), type=kind, durable=True)(channel).declare()
    dead_letter_queue().queue()(channel).declare()


def exchange_purposes() -> dict[str, tuple[str, str]]:
    """Exchange name -> (type, what it is for), for the documentation."""
    return {
        executions_exchange(): ("topic", "life of executions: requests, dispatch, cancel, end"),
        events_exchange(): ("topic", "events that were recorded"),
        notifications_exchange(): ("fanout", "hints that something changed, for notifiers"),
        dead_letter_exchange(): ("topic", "dead letters"),
    }
