"""The page of exchanges and queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.conf import settings

from orchestrator.core import topology
from orchestrator.core.management.markdown import mermaid_of, page_of, table_of
from orchestrator.core.topology import QueueSpec

WORKER_ID = "<id>"
LISTENER = "<name>.<random>"


def page() -> str:
    queues = every_queue()
    return page_of(
        "Exchanges and queues",
        "Every service declares the queues that it consumes and the dead letter queue, in any "
        "order. Each declaration is idempotent and repeated every ten seconds, so that deleted "
        "queues come back. If a queue exists with other arguments, the service exits with an "
        "error that names the queue, the argument, and both values. `manage.py topology check` "
        "compares the broker with this page. The prefix "
        f"`{settings.MUSTER.namespace}` is the setting `MUSTER_NAMESPACE`, and `{WORKER_ID}` is a "
        "worker's id. In any other namespace the names of workers' queues have it too: "
        "`blue.worker.<id>.executions`.",
        "## Exchanges",
        table_of(
            ("Exchange", "Type", "For"),
            [
                (f"`{name}`", kind, purpose)
                for name, (kind, purpose) in topology.exchange_purposes().items()
            ],
        ),
        "## Queues",
        table_of(
            ("Queue", "Holds", "Consumed by", "Exchange", "Routing key", "Arguments"),
            [
                (
                    f"`{spec.name}`",
                    spec.purpose,
                    spec.owner,
                    f"`{spec.exchange}`" if spec.exchange else "default",
                    f"`{spec.routing_key}`" if spec.routing_key else "none",
                    ", ".join(f"`{key}`: {value}" for key, value in spec.arguments.items()),
                )
                for spec in queues
            ],
        ),
        "The queues of listeners hold hints, the newest ones: what was missed is read from the "
        "rows. Nobody else declares or checks them. All others are durable, and none of those "
        "deletes itself: a queue that is deleted, expired or purged dead-letters nothing. A "
        "message in a worker's queue that waits longer than the TTL, or is rejected, goes to the "
        "dead letter exchange and from there to the drain, which ends or repeats its attempt, or "
        "sends its execution back to the backlog, uncounted, if its worker is only busy or another "
        "could take it.",
        "## Flow",
        mermaid_of(_flow(queues)),
        "Messages carry ids and the attempt, never state: the row is the truth. A lost, "
        "repeated or late message costs time and nothing else.",
    )


def every_queue() -> list[QueueSpec]:
    """The shared queues, those of listeners, and those of an example worker."""
    return [
        *topology.shared_queues(),
        *queues_of_listeners(),
        *topology.worker_queues(WORKER_ID),
    ]


def queues_of_listeners() -> list[QueueSpec]:
    """The queues that their listeners declare themselves, and that go with their connections. What
    they are declared with is written there, above core; a test compares the two."""
    passing = "not durable, exclusive, deletes itself"
    return [
        QueueSpec(
            name=topology.told_queue(LISTENER),
            exchange=topology.executions_exchange(),
            routing_key=topology.COMPLETED,
            owner="executor",
            purpose=f"executions that ended, for one keeper of gates: {passing}",
            arguments={"x-max-length": 10_000},
        ),
        QueueSpec(
            name=topology.notifications_queue(LISTENER),
            exchange=topology.notifications_exchange(),
            routing_key="",
            owner="notifier",
            purpose=f"hints that something changed, for one notifier or API process: {passing}",
            arguments={"x-max-length": 50_000},
            exchange_type="fanout",
        ),
    ]


def _flow(queues: Sequence[QueueSpec]) -> Iterator[str]:
    yield "flowchart LR"
    for number, name in enumerate(topology.exchange_purposes()):
        yield f'    x{number}{{{{"{name}"}}}}'
    exchanges = {name: f"x{n}" for n, name in enumerate(topology.exchange_purposes())}
    yield from (
        f'    {sender}(["{sender}"]) --> {exchanges[name]}'
        for sender, names in published().items()
        for name in names
    )
    yield '    beat(["beat"]) --> default{{"default exchange"}}'
    for number, spec in enumerate(queues):
        name = spec.name.replace("<", "#lt;").replace(">", "#gt;")
        key = spec.routing_key.replace("<", "#lt;").replace(">", "#gt;")
        source = exchanges.get(spec.exchange, "default")
        arrow = f'-->|"{key}"|' if key else "-->"
        yield f'    {source} {arrow} q{number}[("{name}")] --> {spec.owner}(["{spec.owner}"])'
        if dead := spec.arguments.get("x-dead-letter-exchange"):
            why = "expired, rejected" if "x-message-ttl" in spec.arguments else "rejected"
            yield f'    q{number} -. "{why}" .-> {exchanges[dead]}'


def published() -> dict[str, tuple[str, ...]]:
    """The exchanges to which each service publishes. The default one, to which beat does, is not
    ours."""
    executions, events = topology.executions_exchange(), topology.events_exchange()
    hints = topology.notifications_exchange()
    return {
        "api": (executions, events, hints),
        "executor": (executions, events, hints),
        "sensor": (events, hints),
        "worker": (executions, hints),
    }
