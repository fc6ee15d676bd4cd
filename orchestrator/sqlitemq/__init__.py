"""The embedded broker: RabbitMQ's semantics over one SQLite file, for one host.

A kombu transport, so Celery and all other users of kombu select it by its URL,
`sqlitemq:////absolute/path/broker.db`. It does what RabbitMQ does, and tests/contract/ runs the
same cases against both: direct, topic and fanout exchanges, the default exchange, TTL of queues and
messages, dead letters with `x-death`, `x-max-length` and `x-overflow`, `x-max-priority`,
`x-expires`, exclusive and auto-delete queues, `mandatory`, confirms and refusals (nack), prefetch,
406 on unequal arguments, and messages that are delivered again when their consumer is killed.
Quorum queues differ from classic ones in what they refuse, in `x-delivery-count` and
`x-delivery-limit`.

Differences: a message expires anywhere in its queue, not only at the head; a channel survives a
refused method; non-durable queues and transient messages survive too, since there is no broker to
restart; a quorum queue keeps the place of a message that comes back and the exact `x-max-length`,
as a classic one does; there are no streams and no `x-max-length-bytes`; a `user_id` is believed. A
power cut may lose the last commits, the death of a process loses nothing.
"""

from orchestrator.sqlitemq import messages, store, transport
from orchestrator.sqlitemq.store import BrokerFileError
from orchestrator.sqlitemq.transport import Transport

__all__ = ["BrokerFileError", "Transport", "sweep"]


def sweep(url: str) -> int:
    """Do the due maintenance of the broker at `url` if no consumer is there: expire and dead-letter
    messages, give back those of dead processes. Returns how many messages expired.
    """
    opened, owner = store.connect(transport.path_from_url(url))
    try:
        return messages.sweep(opened)
    finally:
        messages.release_owner(opened, owner)
        store.disconnect(opened, owner)
