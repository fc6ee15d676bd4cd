"""The embedded broker: RabbitMQ's semantics over one SQLite file, for one host.

A kombu transport, so Celery and everything else that speaks kombu uses it by its URL,
`sqlitemq:////absolute/path/broker.db`. What RabbitMQ does it does too, and tests/contract/ holds
both to the same cases: direct, topic and fanout exchanges, the default exchange, TTL of queues and
messages, dead letters with `x-death`, `x-max-length`, `x-expires`, exclusive and auto-delete
queues, `mandatory`, prefetch, 406 on unequal arguments, and messages that are delivered again when
their consumer is killed.

What it does differently: a message expires wherever it is in its queue, not only at the head; a
channel survives a refused method; non-durable queues and transient messages survive too, since
there is no broker to restart; priorities are ignored. A power cut may cost the last commits, the
death of any process costs nothing.
"""

from orchestrator.sqlitemq import messages, store, transport
from orchestrator.sqlitemq.store import BrokerFileError
from orchestrator.sqlitemq.transport import Transport

__all__ = ["BrokerFileError", "Transport", "sweep"]


def sweep(url: str) -> int:
    """Do what is due in the broker at `url` with no consumer there to do it: expire messages and
    dead-letter them, give back what the dead held. Returns how many messages expired.
    """
    opened, owner = store.connect(transport.path_from_url(url))
    try:
        return messages.sweep(opened)
    finally:
        messages.release_owner(opened, owner)
        store.disconnect(opened, owner)
