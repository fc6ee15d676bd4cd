"""Declare, bind, purge and delete exchanges and queues, with RabbitMQ's error messages."""

import json
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from amqp.exceptions import (
    AccessRefused,
    InvalidCommand,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from amqp.protocol import queue_declare_ok_t
from kombu.transport import base
from kombu.transport.base import StdChannel

from orchestrator.sqlitemq import messages, routing
from orchestrator.sqlitemq.link import Link
from orchestrator.sqlitemq.routing import EXCHANGE_DECLARE, QUEUE_DECLARE, Queue
from orchestrator.sqlitemq.store import Store

EXCHANGE_TYPES = frozenset({"direct", "topic", "fanout"})


class Declarations(StdChannel):
    """The part of a channel that is about topology."""

    connection: Link

    @property
    @abstractmethod
    def store(self) -> Store: ...

    # ---- exchanges ----

    def exchange_declare(
        self,
        exchange: str,
        type: str = "direct",
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        nowait: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_: object,
    ) -> None:
        sig, arguments = EXCHANGE_DECLARE, dict(arguments or {})
        declared = self.store.topology().exchanges.get(exchange)
        if passive:
            if declared is None:
                raise _not_found("exchange", exchange, *sig)
            return
        if type not in EXCHANGE_TYPES:
            raise InvalidCommand(f"COMMAND_INVALID - unknown exchange type '{type}'", *sig)
        if declared is None:
            insert = "INSERT OR IGNORE INTO exchange VALUES (?, ?, ?, ?, ?)"
            encoded = json.dumps(arguments, sort_keys=True)
            with self.store.transaction() as db:
                db.execute(insert, (exchange, type, bool(durable), bool(auto_delete), encoded))
                self.store.topology_changed()
            declared = self.store.topology().exchanges[exchange]  # or another process was first
        routing.check_field("exchange", exchange, "type", type, declared.type)
        routing.check_field("exchange", exchange, "durable", bool(durable), declared.durable)
        routing.check_field(
            "exchange", exchange, "auto_delete", bool(auto_delete), declared.auto_delete
        )
        routing.check_arguments("exchange", exchange, arguments, declared.arguments)

    def exchange_delete(
        self, exchange: str, if_unused: bool = False, nowait: bool = False, **_: object
    ) -> None:
        with self.store.transaction() as db:
            bound = db.execute("SELECT 1 FROM binding WHERE exchange = ?", (exchange,)).fetchone()
            if if_unused and bound:
                raise PreconditionFailed(
                    f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use",
                    (40, 20),
                    "Exchange.delete",
                )
            db.execute("DELETE FROM exchange WHERE name = ?", (exchange,))
            db.execute("DELETE FROM binding WHERE exchange = ?", (exchange,))
            self.store.topology_changed()

    # ---- queues ----

    def prepare_queue_arguments(
        self, arguments: dict[str, Any] | None, **kwargs: Any
    ) -> dict[str, Any] | None:
        translate: Any = base.to_rabbitmq_queue_arguments  # type: ignore[attr-defined]
        prepared: dict[str, Any] = translate(arguments or {}, **kwargs)
        return prepared

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = True,
        nowait: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_: object,
    ) -> queue_declare_ok_t:
        """Declare a queue, or with `passive` only look. Sweeps first, so that the counts are
        right."""
        messages.sweep(self.store)
        arguments = dict(arguments or {})
        if passive:
            declared = self._queue(queue, *QUEUE_DECLARE)
            self.mark_used(declared)
        else:
            routing.check_valid(
                queue,
                arguments,
                durable=bool(durable),
                exclusive=bool(exclusive),
                auto_delete=bool(auto_delete),
            )
            if queue.startswith("amq."):
                raise AccessRefused(
                    f"ACCESS_REFUSED - queue name '{queue}' contains reserved prefix 'amq.*'",
                    *QUEUE_DECLARE,
                )
            name = queue or f"amq.gen-{uuid.uuid4().hex}"
            declared = self._declare(name, durable, exclusive, auto_delete, arguments)
        consumers = self.store.read(
            "SELECT count(*) FROM consumer WHERE queue_id = ?", (declared.id,)
        )
        ready = messages.count_ready(self.store, declared.id)
        return queue_declare_ok_t(declared.name, ready, consumers[0][0])

    def _declare(
        self,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, Any],
    ) -> Queue:
        now, expires_ms = time.time(), arguments.get("x-expires")
        with self.store.transaction() as db:
            current = self.store.topology().queues.get(name)
            if current is None:
                insert = """
                    INSERT INTO queue (name, durable, exclusive, auto_delete, owner, arguments,
                                       expires_seconds, used_at)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                """
                values = (
                    name,
                    bool(durable),
                    bool(exclusive),
                    bool(auto_delete),
                    self.connection.owner if exclusive else None,
                    json.dumps(arguments, sort_keys=True),
                    expires_ms / 1000 if expires_ms is not None else None,
                    now,
                )
                db.execute(insert, values)
                self.store.topology_changed()
            else:
                self._check_equal(current, durable, exclusive, auto_delete, arguments)
                self.mark_used(current)
            return self.store.topology().queues[name]

    def mark_used(self, queue: Queue) -> None:
        """Restart the `x-expires` of a queue, after it was declared or read."""
        if "x-expires" in queue.arguments:
            used = "UPDATE queue SET used_at = ? WHERE id = ?"
            with self.store.transaction() as db:
                db.execute(used, (time.time(), queue.id))

    def _check_equal(
        self,
        current: Queue,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, Any],
    ) -> None:
        name = current.name
        self._check_access(current, *QUEUE_DECLARE, exclusive=bool(exclusive))
        routing.check_field("queue", name, "durable", bool(durable), current.durable)
        routing.check_field("queue", name, "auto_delete", bool(auto_delete), current.auto_delete)
        routing.check_arguments("queue", name, arguments, current.arguments)

    def _check_access(
        self,
        queue: Queue,
        signature: tuple[int, int],
        method: str,
        *,
        exclusive: bool | None = None,
    ) -> None:
        foreign = queue.exclusive and queue.owner != self.connection.owner
        if foreign or (exclusive is not None and exclusive != queue.exclusive):
            raise ResourceLocked(
                "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
                f"'{queue.name}' in vhost '/'. It could be originally declared on another "
                "connection or the exclusive property value does not match that of the "
                "original declaration.",
                signature,
                method,
            )

    def _queue(self, name: str, signature: tuple[int, int], method: str) -> Queue:
        queue = self.store.topology().queues.get(name)
        if queue is None:
            raise _not_found("queue", name, signature, method)
        self._check_access(queue, signature, method)
        return queue

    def queue_bind(
        self,
        queue: str,
        exchange: str = "",
        routing_key: str = "",
        nowait: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_: object,
    ) -> None:
        sig = ((50, 20), "Queue.bind")
        if not exchange:
            raise AccessRefused(
                "ACCESS_REFUSED - operation not permitted on the default exchange", *sig
            )
        with self.store.transaction() as db:
            bound = self._queue(queue, *sig)
            if exchange not in self.store.topology().exchanges:
                raise _not_found("exchange", exchange, *sig)
            insert = "INSERT OR IGNORE INTO binding VALUES (?, ?, ?)"
            if db.execute(insert, (exchange, routing_key or "", bound.id)).rowcount:
                self.store.topology_changed()

    def queue_unbind(self, queue: str, exchange: str, routing_key: str = "", **_: object) -> None:
        declared = self.store.topology().queues.get(queue)
        if declared is None:
            return
        delete = "DELETE FROM binding WHERE exchange = ? AND routing_key = ? AND queue_id = ?"
        with self.store.transaction() as db:
            db.execute(delete, (exchange, routing_key or "", declared.id))
            self.store.topology_changed()

    def bindings(self) -> Iterator[tuple[str, str, str]]:
        """Exchange, queue and routing key of each binding, which AMQP does not list."""
        for exchange, bound in self.store.topology().bindings.items():
            for routing_key, queue in bound:
                yield exchange, queue.name, routing_key

    def queue_purge(self, queue: str, nowait: bool = False, **_: object) -> int:
        """Remove the ready messages, without dead-lettering. Returns how many."""
        purged = self._queue(queue, (50, 30), "Queue.purge")
        delete = "DELETE FROM message WHERE queue_id = ? AND owner IS NULL"
        with self.store.transaction() as db:
            return db.execute(delete, (purged.id,)).rowcount

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,
        if_empty: bool = False,
        nowait: bool = False,
        **_: object,
    ) -> int:
        """Delete the queue and its messages. Returns how many were ready; 0 if there is none."""
        sig = ((50, 40), "Queue.delete")
        with self.store.transaction() as db:
            declared = self.store.topology().queues.get(queue)
            if declared is None:
                return 0
            self._check_access(declared, *sig)
            consumed = db.execute("SELECT 1 FROM consumer WHERE queue_id = ?", (declared.id,))
            ready = messages.count_ready(self.store, declared.id)
            for refused, why in (
                (if_unused and consumed.fetchone(), "in use"),
                (if_empty and ready, "not empty"),
            ):
                if refused:
                    raise PreconditionFailed(
                        f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' {why}", *sig
                    )
            self.store.wake(declared.addresses)  # its consumers have to notice it
            messages.delete_queue(self.store, db, declared.id)
        return ready


def _not_found(kind: str, name: str, signature: tuple[int, int], method: str) -> NotFound:
    return NotFound(f"NOT_FOUND - no {kind} '{name}' in vhost '/'", signature, method)
