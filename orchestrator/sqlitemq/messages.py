"""The life of a message in the file: publish, take, settle, expire, dead-letter, give back.

Every function that writes is called inside `store.transaction()`. Times are `time.time()` in
seconds, durations in the unit of their name.
"""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple

from amqp.exceptions import NotFound
from kombu.utils.json import dumps, loads

from orchestrator.sqlitemq import wake
from orchestrator.sqlitemq.routing import DROP_HEAD, REJECT, Queue
from orchestrator.sqlitemq.store import Store

SWEEP_BATCH = 500
EXPIRY_CHECK_SECONDS = 0.1
REAP_SECONDS = 1.0

INSERT = """
INSERT INTO message (queue_id, expires_at, exchange, routing_key, properties, body, priority)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
HAS_READY = """
SELECT 1 FROM message
WHERE queue_id = ? AND owner IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1
"""
COUNT_READY = """
SELECT count(*) FROM message
WHERE queue_id = ? AND owner IS NULL AND (expires_at IS NULL OR expires_at > ?)
"""
HEAD = """
SELECT id FROM message
WHERE queue_id = ? AND owner IS NULL AND (expires_at IS NULL OR expires_at > ?)
ORDER BY priority DESC, id LIMIT ?
"""
TAKE = """
UPDATE message SET owner = ? WHERE id IN (
    SELECT id FROM message
    WHERE queue_id = ? AND owner IS NULL AND (expires_at IS NULL OR expires_at > ?)
    ORDER BY priority DESC, id LIMIT ?
) RETURNING -priority, id, returns, exchange, routing_key, properties, body
"""
TAKE_FOR_GOOD = """
DELETE FROM message WHERE id IN (
    SELECT id FROM message
    WHERE queue_id = ? AND owner IS NULL AND (expires_at IS NULL OR expires_at > ?)
    ORDER BY priority DESC, id LIMIT ?
) RETURNING -priority, id, returns, exchange, routing_key, properties, body
"""
ACK = "DELETE FROM message WHERE id = ? AND owner = ?"
REQUEUE = """
UPDATE message SET owner = NULL, returns = returns + 1 WHERE id = ? AND owner = ?
RETURNING id, queue_id, returns
"""
RELEASE = """
UPDATE message SET owner = NULL, returns = returns + 1 WHERE owner = ?
RETURNING id, queue_id, returns
"""
EXPIRED = """
SELECT id FROM message WHERE owner IS NULL AND expires_at IS NOT NULL AND expires_at <= ?
ORDER BY expires_at LIMIT ?
"""
BURY = """
DELETE FROM message WHERE id = ?
RETURNING queue_id, exchange, routing_key, properties, body
"""


@dataclass(slots=True)
class Outgoing:
    """A message to publish. `properties` are AMQP's, including `application_headers`."""

    body: str | bytes
    properties: dict[str, Any]
    exchange: str = ""
    routing_key: str = ""

    @property
    def headers(self) -> dict[str, Any]:
        headers: dict[str, Any] = self.properties.get("application_headers") or {}
        return headers


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that a consumer got."""

    id: int
    returns: int
    """The number of times that it was given back before."""
    exchange: str
    routing_key: str
    properties: dict[str, Any] = field(repr=False)
    body: str | bytes = field(repr=False)


class Published(NamedTuple):
    """The fate of a message: whether there was a queue, and whether a full one refused it."""

    is_routed: bool
    is_refused: bool


def publish(store: Store, message: Outgoing) -> Published:
    """Put a copy into every queue it is routed to; other queues get theirs if one refuses.

    Raises NotFound if the exchange does not exist.
    """
    with store.transaction() as db:
        topology = store.topology()
        queues = topology.route(message.exchange, message.routing_key)
        if not queues and message.exchange and message.exchange not in topology.exchanges:
            raise NotFound(
                f"NOT_FOUND - no exchange '{message.exchange}' in vhost '/'",
                (60, 40),
                "Basic.publish",
            )
        is_refused = _put(store, db, queues, message)
    return Published(bool(queues), is_refused)


def _put(store: Store, db: sqlite3.Connection, queues: Iterable[Queue], message: Outgoing) -> bool:
    """Insert a message; returns True if a full queue refused it, which a publisher is told. Nobody
    is told of a dead letter: RabbitMQ drops it too."""
    now, properties = time.time(), dumps(message.properties)
    expiration = message.properties.get("expiration")
    is_refused = False
    for queue in queues:
        is_full = queue.overflow != DROP_HEAD and _is_full(db, queue)
        is_refused = is_refused or is_full
        if is_full and queue.overflow == REJECT:
            continue
        ttls_ms = [float(ttl) for ttl in (queue.ttl_ms, expiration) if ttl is not None]
        expires_at = now + min(ttls_ms) / 1000 if ttls_ms else None
        priority = min(int(message.properties.get("priority") or 0), queue.max_priority)
        where = (message.exchange, message.routing_key)
        row = (queue.id, expires_at, *where, properties, message.body, priority)
        inserted = db.execute(INSERT, row).lastrowid
        if is_full:
            dead_letter(store, db, [inserted or 0], "maxlen")
        elif queue.max_length is not None:
            _drop_head(store, db, queue, queue.max_length)
        store.wake(queue.addresses)
    return is_refused


def _is_full(db: sqlite3.Connection, queue: Queue) -> bool:
    if queue.max_length is None:
        return False
    (length,) = db.execute(COUNT_READY, (queue.id, time.time())).fetchone()
    return bool(length >= queue.max_length)


def _drop_head(store: Store, db: sqlite3.Connection, queue: Queue, max_length: int) -> None:
    """`x-max-length` drops the next messages, as RabbitMQ does by default: those of the highest
    priority, the oldest first."""
    now = time.time()
    (length,) = db.execute(COUNT_READY, (queue.id, now)).fetchone()
    if length > max_length:
        surplus = db.execute(HEAD, (queue.id, now, length - max_length)).fetchall()
        dead_letter(store, db, [row[0] for row in surplus], "maxlen")


def has_ready(store: Store, queue_id: int) -> bool:
    return bool(store.read(HAS_READY, (queue_id, time.time())))


def count_ready(store: Store, queue_id: int) -> int:
    return int(store.read(COUNT_READY, (queue_id, time.time()))[0][0])


def take(
    db: sqlite3.Connection, queue_id: int, *, owner: int, limit: int, no_ack: bool
) -> list[Taken]:
    """Take the next ready messages, at most `limit`; with `no_ack` they are deleted from the
    file."""
    oldest = (queue_id, time.time(), limit)
    if no_ack:
        rows = db.execute(TAKE_FOR_GOOD, oldest).fetchall()
    else:
        rows = db.execute(TAKE, (owner, *oldest)).fetchall()
    rows.sort(key=itemgetter(0, 1))  # RETURNING guarantees no order
    return [Taken(i, back, ex, key, loads(props), b) for _, i, back, ex, key, props, b in rows]


def ack(store: Store, owner: int, ids: Iterable[int]) -> None:
    with store.transaction() as db:
        db.executemany(ACK, [(i, owner) for i in ids])


def requeue(store: Store, owner: int, ids: Iterable[int]) -> None:
    """Put messages back in their place, with their expiry; classic queues keep both too."""
    with store.transaction() as db:
        rows = [db.execute(REQUEUE, (message_id, owner)).fetchone() for message_id in ids]
        _given_back(store, db, [row for row in rows if row is not None])


def _given_back(store: Store, db: sqlite3.Connection, rows: Iterable[tuple[int, int, int]]) -> None:
    """Wake the consumers of messages that are ready again, and dead-letter those that came back
    more often than their quorum queue allows. A row is message, queue, and returns."""
    topology, beyond = store.topology(), []
    for message_id, queue_id, returns in rows:
        queue = topology.queues_by_id.get(queue_id)
        if queue is None:
            continue
        store.wake(queue.addresses)
        if queue.delivery_limit is not None and returns > queue.delivery_limit:
            beyond.append(message_id)
    dead_letter(store, db, beyond, "delivery_limit")


def reject(store: Store, owner: int, ids: Sequence[int]) -> None:
    with store.transaction() as db:
        held = "SELECT 1 FROM message WHERE id = ? AND owner = ?"
        ours = [i for i in ids if db.execute(held, (i, owner)).fetchone()]
        dead_letter(store, db, ours, "rejected")


# ---- dead letters ----


def dead_letter(store: Store, db: sqlite3.Connection, ids: Iterable[int], reason: str) -> None:
    """Move messages to their queue's dead-letter exchange; drop them if there is none."""
    topology, now = store.topology(), time.time()
    for message_id in ids:
        row = db.execute(BURY, (message_id,)).fetchone()
        queue = topology.queues_by_id.get(row[0]) if row else None
        if queue is None or queue.dead_letter_exchange is None:
            continue
        _, exchange, routing_key, properties, body = row
        message = Outgoing(body, loads(properties), exchange, routing_key)
        deaths = _record_death(message, queue.name, reason, now)
        message.exchange = queue.dead_letter_exchange
        message.routing_key = queue.dead_letter_routing_key or routing_key
        targets = [
            target
            for target in topology.route(message.exchange, message.routing_key)
            if reason == "rejected" or not _goes_in_circles(target.name, deaths)
        ]
        _put(store, db, targets, message)


def _record_death(message: Outgoing, queue: str, reason: str, now: float) -> list[dict[str, Any]]:
    """Write RabbitMQ's `x-death` headers: latest first, one entry for each queue and reason."""
    headers = message.properties.setdefault("application_headers", {})
    deaths = list(headers.get("x-death") or ())
    earlier = [d for d in deaths if d["queue"] == queue and d["reason"] == reason]
    death = {
        "count": 1 + sum(d["count"] for d in earlier),
        "reason": reason,
        "queue": queue,
        # py-amqp passes timestamps without a zone, in UTC
        "time": datetime.fromtimestamp(int(now), UTC).replace(tzinfo=None),
        "exchange": message.exchange,
        "routing-keys": [message.routing_key],
    }
    expiration = message.properties.pop("expiration", None)  # otherwise it would expire there too
    if expiration is not None:
        death["original-expiration"] = expiration
    headers["x-death"] = [death, *(d for d in deaths if d not in earlier)]
    for key in ("reason", "queue", "exchange"):
        headers.setdefault(f"x-first-death-{key}", death[key])
    return headers["x-death"]  # type: ignore[no-any-return]


def _goes_in_circles(queue: str, deaths: Sequence[dict[str, Any]]) -> bool:
    """Return True if a message comes back to a queue without a rejection: RabbitMQ drops it."""
    for position, death in enumerate(deaths):
        if death["queue"] == queue:
            return all(d["reason"] != "rejected" for d in deaths[: position + 1])
    return False


# ---- periodic maintenance, by the next process that looks ----


def maintain(store: Store) -> None:
    """Expire and reap if it is time; for a consumer that looks often. At most one batch."""
    now = time.monotonic()
    if now >= store.next_expiry_check_at:
        store.next_expiry_check_at = now + EXPIRY_CHECK_SECONDS
        expire(store)
    if now >= store.next_reap_at:
        store.next_reap_at = now + REAP_SECONDS
        reap(store)


def sweep(store: Store) -> int:
    """Do all maintenance now: expire, dead-letter, reap. Returns how many messages expired."""
    reap(store)
    expired = 0
    while batch := expire(store):
        expired += batch
    return expired


def expire(store: Store) -> int:
    """Dead-letter one bounded batch of expired messages, so that the file is not locked for
    long."""
    if not store.read(EXPIRED, (time.time(), 1)):
        return 0
    with store.transaction() as db:
        ids = [row[0] for row in db.execute(EXPIRED, (time.time(), SWEEP_BATCH)).fetchall()]
        dead_letter(store, db, ids, "expired")
    return len(ids)


def reap(store: Store) -> None:
    """Give back the messages of dead connections, and delete the queues that have expired."""
    store.check_file_is_ours()
    abandoned, store.abandoned = store.abandoned, []
    for owner in abandoned:
        store.forget_owner(owner)
    for (owner,) in store.read("SELECT id FROM owner"):
        if not store.is_alive(owner):
            release_owner(store, owner)
    unused = """
        SELECT id FROM queue WHERE used_at + expires_seconds <= ?
        AND NOT EXISTS (SELECT 1 FROM consumer WHERE queue_id = queue.id)
    """
    if store.read(unused, (time.time(),)):
        with store.transaction() as db:
            for (queue_id,) in db.execute(unused, (time.time(),)).fetchall():
                delete_queue(store, db, queue_id)


def release_owner(store: Store, owner: int) -> None:
    """Clean up after an owner: make its messages ready, remove its consumers and exclusive
    queues."""
    with store.transaction() as db:
        _given_back(store, db, sorted(db.execute(RELEASE, (owner,)).fetchall()))
        consumers = "SELECT id, queue_id, address FROM consumer WHERE owner = ?"
        for row, queue_id, address in db.execute(consumers, (owner,)).fetchall():
            remove_consumer(store, db, row, queue_id)
            wake.remove(address)
        exclusive = "SELECT id FROM queue WHERE exclusive AND owner = ?"
        for (queue_id,) in db.execute(exclusive, (owner,)).fetchall():
            delete_queue(store, db, queue_id)
        db.execute("DELETE FROM owner WHERE id = ?", (owner,))


def remove_consumer(store: Store, db: sqlite3.Connection, row: int, queue_id: int) -> None:
    """Remove a consumer, and with the last one an auto-delete queue, which dead-letters nothing."""
    db.execute("DELETE FROM consumer WHERE id = ?", (row,))
    db.execute("UPDATE queue SET used_at = ? WHERE id = ?", (time.time(), queue_id))
    left_alone = """
        SELECT 1 FROM queue WHERE id = ? AND auto_delete
        AND NOT EXISTS (SELECT 1 FROM consumer WHERE queue_id = queue.id)
    """
    if db.execute(left_alone, (queue_id,)).fetchone():
        delete_queue(store, db, queue_id)
    store.topology_changed()


def delete_queue(store: Store, db: sqlite3.Connection, queue_id: int) -> None:
    """Delete a queue and its messages, which are not dead-lettered; RabbitMQ does the same."""
    db.execute("DELETE FROM message WHERE queue_id = ?", (queue_id,))
    db.execute("DELETE FROM binding WHERE queue_id = ?", (queue_id,))
    db.execute("DELETE FROM consumer WHERE queue_id = ?", (queue_id,))
    db.execute("DELETE FROM queue WHERE id = ?", (queue_id,))
    store.topology_changed()
