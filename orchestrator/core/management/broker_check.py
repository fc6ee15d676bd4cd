"""The broker compared with the topology: arguments, bindings, policies and consumers.

`declarations.inspect` finds what AMQP shows. The rest comes from the broker's own list, if it can
be read; otherwise it is said that it was not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kombu import Connection

from orchestrator.core import declarations, topology
from orchestrator.core.declarations import NO_CONSUMER, Finding, Problem
from orchestrator.core.management import broker_listing
from orchestrator.core.management.broker_listing import Binding, Listing, NotListed, Policy
from orchestrator.core.management.broker_topology import ASIDE
from orchestrator.core.models import Worker
from orchestrator.core.topology import QueueSpec

APPLY = "manage.py topology apply"
PROMISED = {
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "overflow",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "delivery-limit",
}
"""Keys of policies that change what Muster counts on."""


@dataclass
class Checked:
    """All findings, and what could not be checked, each with the reason and the remedy."""

    findings: list[Finding]
    not_checked: list[str] = field(default_factory=list)


def check(link: Connection, specs: Sequence[QueueSpec]) -> Checked:
    """Compare the broker with these queues and their exchanges. Changes nothing."""
    checked = Checked(declarations.inspect(link, specs))
    by_name = {finding.name: finding for finding in checked.findings}
    try:
        listing = broker_listing.read(link)
    except NotListed as error:
        checked.not_checked.append(f"bindings and policies: {error}")
    else:
        for name, problem in _of_listing(listing, specs):
            if not by_name[name].is_missing:
                by_name[name].problems.append(problem)
    for spec in _wanting_a_consumer(specs):
        finding = by_name[spec.name]
        if not (finding.is_missing or finding.consumers):
            finding.problems.append(_no_consumer(spec))
    return checked


def _of_listing(listing: Listing, specs: Sequence[QueueSpec]) -> Iterator[tuple[str, Problem]]:
    """The faults of bindings and policies, each with the name of the queue or exchange."""
    ours = {(spec.exchange, spec.name, spec.routing_key): spec for spec in specs if spec.exchange}
    queues = {spec.name for spec in specs}
    exchanges = topology.exchange_purposes().keys()
    found = {(each.source, each.destination, each.routing_key) for each in listing.bindings}
    for key, spec in ours.items():
        if key not in found:
            yield spec.name, _unbound(spec)
    for each in listing.bindings:
        if (each.source, each.destination, each.routing_key) in ours and not each.arguments:
            continue
        if each.destination_type == "queue" and each.destination in queues:
            yield each.destination, _foreign(each)
        elif each.source in exchanges and not _is_heard(each):
            yield each.source, _foreign(each)
    for policy in listing.policies:
        if policy.queue in queues and PROMISED & policy.sets.keys():
            yield policy.queue, _by_policy(policy)


def _is_heard(binding: Binding) -> bool:
    """Return True for the queues in which an executor with gates hears of ends, and a notifier of
    changes: they are not of the topology, as they come and go with a connection."""
    if binding.source == topology.notifications_exchange():
        return binding.destination.startswith(topology.notifications_queue(""))
    return (
        binding.destination_type == "queue"
        and binding.destination.startswith(topology.told_queue(""))
        and binding.routing_key == topology.COMPLETED
    )


def _unbound(spec: QueueSpec) -> Problem:
    return Problem(
        "unbound", f"it is not bound to {spec.exchange} with the key {spec.routing_key}", APPLY
    )


def _foreign(binding: Binding) -> Problem:
    """A binding that is not of the topology: a copy of messages goes elsewhere, or others come."""
    what = (
        f"{binding.source} is bound to the {binding.destination_type} {binding.destination} "
        f"with the key {binding.routing_key!r}, which Muster does not do"
    )
    if binding.destination.endswith(ASIDE):
        return Problem("foreign binding", what, "manage.py topology migrate, to end what began")
    return Problem(
        "foreign binding",
        what,
        "find who made it; if nobody needs it, unbind it on the broker's management page",
    )


def _by_policy(policy: Policy) -> Problem:
    sets = ", ".join(f"{name}={value}" for name, value in sorted(policy.sets.items()))
    return Problem(
        "policy",
        f"the policy {policy.name} sets {sets}",
        f"leave Muster's queues out of its pattern, or rabbitmqctl clear_policy {policy.name}",
    )


def _wanting_a_consumer(specs: Sequence[QueueSpec]) -> Iterator[QueueSpec]:
    """The queues that have a consumer while the installation runs. Dead letters are fetched every
    few seconds only, and a worker that is down consumes nothing."""
    up = {str(pk) for pk in Worker.objects.up().values_list("pk", flat=True)}
    of_workers_up = {spec.name for pk in up for spec in topology.worker_queues(pk)}
    for spec in specs:
        if spec.owner != "worker":
            if spec not in topology.common():
                yield spec
        elif spec.name in of_workers_up:
            yield spec


def _no_consumer(spec: QueueSpec) -> Problem:
    remedy = (
        "start an executor: manage.py executor"
        if spec.owner == "executor"
        else "see that worker's log; it consumes again by itself, or restart it"
    )
    return Problem(NO_CONSUMER, "nobody consumes it", remedy)
