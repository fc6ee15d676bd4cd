"""Queues: does it flow? Lanes of work, their gates, and the broker's queues between services."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import access, broker, draw, lane_orders
from orchestrator.console.access import Context
from orchestrator.console.broker import Sampled, Seen
from orchestrator.console.kept import for_all
from orchestrator.console.look import Look
from orchestrator.core import authority, queue_flow, topology, words
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.models.execution_sets import BACKLOG, DISPATCHED
from orchestrator.core.queue_flow import Flow, Flows
from orchestrator.core.queue_terms import DEFAULT
from orchestrator.core.shown import queue_flow as flow_shown
from orchestrator.core.topology import QueueSpec
from orchestrator.core.words import Kind
from orchestrator.queues import changes, figures
from orchestrator.queues.gates.depths import Depth as GateDepth
from orchestrator.queues.models import Gate, WorkQueue
from orchestrator.queues.shown import queues as shown
from orchestrator.queues.shown.queues import QueueSummary
from orchestrator.queues.states import KINDS

LANES_MAX = 200
WORKERS_MAX = 50
GATES_MAX = 50
FIRST_MAX = 20
"""Of a lane's waiting executions, the next so many are shown."""
LETTERS_MAX = 10_000

TOPICS = "execution,worker,clock"


@dataclass(frozen=True)
class Lane:
    """A lane as the table shows it."""

    queue: QueueSummary
    accepted: int
    """In the last minute."""

    @property
    def url(self) -> str:
        return "" if self.queue.name == DEFAULT else lane_orders.url(self.queue.name)

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.queue.state, Kind.PLAIN)

    @property
    def running(self) -> str:
        limit = self.queue.max_running
        return f"{self.queue.running}" + ("" if limit is None else f" of {limit}")

    @property
    def oldest(self) -> str:
        return words.span(self.queue.oldest_seconds) if self.queue.waiting else ""

    @property
    def rate(self) -> str:
        return f"{self.accepted} / {self.queue.per_minute:g}"

    @property
    def servers(self) -> str:
        """The workers that serve it; of many, their number and that of their slots."""
        servers = self.queue.served_by
        if len(servers) > 4:
            slots = sum(each.slots for each in servers)
            return f"{len(servers)} workers, {slots} slots"
        return ", ".join(map(shown.served, servers)) or "nobody"

    @property
    def why(self) -> str:
        return shown.why(self.queue)


@dataclass(frozen=True)
class GateQueue:
    """A queue of a gate as its broker has it."""

    purpose: str
    name: str
    messages: str
    consumers: str


@dataclass(frozen=True)
class GateRow:
    """A gate with its queues."""

    lane: str
    broker: str
    problem: str
    queues: Sequence[GateQueue]

    @property
    def url(self) -> str:
        return lane_orders.url(self.lane)


@dataclass(frozen=True)
class BrokerRow:
    """A queue of Muster's broker: what the rows say, and what the broker says."""

    spec: QueueSpec
    now: datetime
    flow: Flow | None
    sampled: Sampled | None
    worker: Worker | None = None
    letters: int = 0

    @property
    def waits(self) -> str:
        return "" if self.flow is None or self.flow.waiting is None else f"{self.flow.waiting:,}"

    @property
    def ready(self) -> str:
        if self.sampled is None:
            return ""
        return "missing" if self.sampled.depth is None else f"{self.sampled.depth.ready:,}"

    @property
    def consumers(self) -> str:
        depth = self.sampled.depth if self.sampled else None
        return "" if depth is None else f"{depth.consumers}"

    @property
    def moves(self) -> str:
        return "" if self.flow is None else f"{self.flow.entered:.0f} / {self.flow.left:.0f}"

    @property
    def oldest(self) -> str:
        if self.flow is None or self.flow.oldest_at is None:
            return ""
        return words.span((self.now - self.flow.oldest_at).total_seconds())

    @property
    def left_seconds(self) -> float | None:
        """Until the message of what has waited longest expires."""
        if self.flow is None or self.flow.expires_at is None:
            return None
        return max(0.0, (self.flow.expires_at - self.now).total_seconds())

    @property
    def left(self) -> str:
        return "" if self.left_seconds is None else words.span(self.left_seconds)

    @property
    def asked(self) -> str:
        """The age of the broker's answer, if it is not of this moment."""
        if self.sampled is None:
            return ""
        age = time.monotonic() - self.sampled.at
        return f"as of {words.span(age)} ago" if age > 2 * broker.EVERY_SECONDS else ""

    @property
    def note(self) -> str:
        if self.sampled is None:
            return ""
        if self.sampled.depth is None:
            return flow_shown.MISSING
        is_of_worker = self.worker is not None
        return flow_shown.difference(self.flow, self.sampled.depth, is_of_worker=is_of_worker)

    @property
    def letters_url(self) -> str:
        query = urlencode({"q": self.spec.name, "resolution_status__exact": "pending"})
        return f"{reverse('admin:orchestrator_dlqentry_changelist')}?{query}"


@access.page("queues", needs="queues.read", topics=TOPICS)
def show_list(look: Look, request: HttpRequest) -> Context:
    """Lanes, gates, and the queues between the services."""
    now = _read(look)
    found = _lanes(now)
    fleet = _fleet(look, now)
    workers = _shown_workers(fleet, now.held)
    seen = broker.queues(each.pk for each in workers)
    return {
        "title": "Queues",
        "here": "queues",
        "lanes": found,
        "lanes_max": LANES_MAX if len(found) > LANES_MAX else 0,
        "gates": _gates(found),
        "shared": _shared(look, now.flows, seen) if look.may("metrics.read") else [],
        "of_workers": _of_workers(look, workers, now.flows, seen),
        "workers_max": WORKERS_MAX if len(fleet) > WORKERS_MAX else 0,
        "silent": _silence(look, seen),
        "rows_max": f"{queue_flow.MOST_EVENTS:,}",
    }


class Now(NamedTuple):
    """The lanes, and what is in them and in the broker's queues, the same for everybody."""

    queues: Sequence[QueueSummary]
    accepted: Mapping[str | None, int]
    """In the last minute, by lane."""
    flows: Flows
    held: Mapping[int, int]
    """The number of executions that workers hold, by the ids of the workers."""
    workers: Sequence[Worker]
    """Those that are not retired, by name."""


def lanes(look: Look) -> list[Lane]:
    """The lanes that are in use, the default one first."""
    return _lanes(_read(look))


def _lanes(now: Now) -> list[Lane]:
    accepted = Counter({name or DEFAULT: number for name, number in now.accepted.items()})
    return [Lane(each, accepted[each.name]) for each in now.queues]


def _read(look: Look) -> Now:
    return for_all(lane_orders.LANES, lambda: _read_for_all(look.now))


def _read_for_all(now: datetime) -> Now:
    rows = WorkQueue.objects.select_related("action", "pack", "gate").in_use()[:LANES_MAX]
    work = queue_flow.read(now)
    held: Counter[int] = Counter()
    for each in work.open:
        if each.status in DISPATCHED and each.worker_id is not None:
            held[each.worker_id] += each.number
    workers = list(Worker.objects.known().only(*figures.READ, "gone_at"))
    slots = figures.serving(now, [each for each in workers if each.is_up])
    queues = shown.all_and_default(rows, now=now, work=work, slots=slots)
    return Now(queues, work.accepted, queue_flow.flows(work), held, workers)


def _fleet(look: Look, now: Now) -> Sequence[Worker]:
    """The workers that the user may see."""
    sees_all = authority.reach(look.user, "workers.read").is_everywhere
    return now.workers if sees_all else look.workers


def _silence(look: Look, seen: Seen[Any]) -> str:
    """Since when the broker has not answered; empty if it does."""
    if seen.silent_seconds is None:
        return ""
    since = look.now - timedelta(seconds=seen.silent_seconds)
    return str(draw.moment(since))


# --- gates ---------------------------------------------------------------------------------------


def _gates(found: Sequence[Lane]) -> list[GateRow]:
    problems = {each.queue.name: each.queue.gate_problem for each in found if each.queue.has_gate}
    if not problems:
        return []
    rows = Gate.objects.filter(queue__name__in=problems).select_related("queue")
    gates = list(rows.order_by("queue__name")[:GATES_MAX])
    return gate_rows(gates, problems)


def gate_rows(gates: Sequence[Gate], problems: Mapping[str, str]) -> list[GateRow]:
    """Gates with what their brokers said last."""
    answers = broker.gates(gates)
    return [_gate_row(each, problems.get(each.queue.name, ""), answers[each.pk]) for each in gates]


def _gate_row(gate: Gate, problem: str, depths: Sequence[GateDepth] | None) -> GateRow:
    queues = [_gate_queue(each) for each in depths or ()]
    if depths is None:
        problem = "; ".join(filter(None, (problem, f"the broker {gate.broker} does not answer")))
    return GateRow(gate.queue.name, gate.broker, problem, queues)


def _gate_queue(depth: GateDepth) -> GateQueue:
    messages = "missing" if depth.messages is None else f"{depth.messages:,}"
    consumers = "" if depth.consumers is None else str(depth.consumers)
    return GateQueue(depth.purpose, depth.queue, messages, consumers)


# --- queues of the broker ------------------------------------------------------------------------


def _shared(look: Look, flows: Flows, seen: Seen[Mapping[str, Sampled]]) -> list[BrokerRow]:
    answer = seen.answer or {}
    return [
        BrokerRow(spec, look.now, flows.of(spec.name), answer.get(spec.name))
        for spec in topology.shared_queues()
    ]


def _shown_workers(fleet: Sequence[Worker], held: Mapping[int, int]) -> Sequence[Worker]:
    """Those whose queues are shown: of a large fleet those that hold most."""
    if len(fleet) <= WORKERS_MAX:
        return fleet
    return sorted(fleet, key=lambda each: -held.get(each.pk, 0))[:WORKERS_MAX]


def _of_workers(
    look: Look, workers: Sequence[Worker], flows: Flows, seen: Seen[Mapping[str, Sampled]]
) -> list[BrokerRow]:
    """The queues of workers: what waits most first."""
    if not workers:
        return []
    rows = list(_rows_of_workers(look, workers, flows, seen.answer or {}))
    return sorted(rows, key=lambda row: -(row.flow.waiting or 0) if row.flow else 0)


def _rows_of_workers(
    look: Look,
    workers: Sequence[Worker],
    flows: Flows,
    answer: Mapping[str, Sampled],
) -> Iterator[BrokerRow]:
    letters = _letters(look)
    for worker in workers:
        spec = topology.worker_queue(worker.pk)
        name = spec.name
        yield BrokerRow(
            spec, look.now, flows.of(name), answer.get(name), worker, letters.get(name, 0)
        )


def _letters(look: Look) -> dict[str, int]:
    """Letters of each queue that are to be looked into."""
    if not look.may("dlq.read"):
        return {}
    pending = DLQEntry.objects.visible_to(look.user).pending().exclude(original_queue="")
    newest = pending.order_by("-pk").values("pk")[:LETTERS_MAX]
    counted = DLQEntry.objects.filter(pk__in=newest).order_by().values_list("original_queue")
    return dict(counted.annotate(number=Count("pk")))


# --- one lane ------------------------------------------------------------------------------------


@access.page("queue", needs="queues.read", topics=TOPICS)
def show(look: Look, request: HttpRequest, name: str) -> Context:
    """A lane: its figures and rules, what is next, its gate, and what happened to it."""
    queue = changes.find(name)
    found = for_all(f"lane.{name}", lambda: figures.of([name], look.now)[name])
    one = shown.detail(queue, now=look.now, found=found)
    offered = lane_orders.of_lane(queue, look)
    gate = shown.gate_row(queue)
    gates = gate_rows([gate] if gate else [], {name: one.gate_problem})
    return {
        "title": queue.name,
        "here": "queues",
        "queue": queue,
        "kind": KINDS.get(one.state, Kind.PLAIN),
        "why": shown.why(one),
        "situation": draw.facts(shown.situation(one, look.now), seen_by=look.user),
        "rules": draw.facts(shown.rules(one), seen_by=look.user),
        "gate_facts": draw.facts(shown.gate_facts(one), seen_by=look.user),
        "gates": gates,
        "waiting": one.waiting,
        "next": next_of(look, name),
        "events": one.events,
        "dialogs": offered.allowed,
        "orders": offered.useful,
        "admin_url": reverse("admin:queues_workqueue_change", args=[queue.pk]),
    }


def next_of(look: Look, name: str) -> Sequence[Execution]:
    """The executions that are started next, of those that the user may see."""
    if not look.may("executions.read"):
        return []
    waiting = Execution.objects.visible_to(look.user).open().in_queue(name)
    return list(
        waiting.filter(status__in=BACKLOG)
        .order_by("-priority", "pk")
        .only("pk", "action_ref", "status", "priority", "wait_reason", "created_at", "attempt")[
            :FIRST_MAX
        ]
    )
