"""A client of an installation, in a process of its own with that installation's settings.

`python -m tests.scenarios.client FD` answers calls that come through the socket FD: (name of a
function below, its keywords) -> (whether it returned, what it returned or raised). It stands for
an API process: it accepts, cancels and reads, and publishes in the background as the API does.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
django.setup()

from amqp.exceptions import NotFound, PreconditionFailed  # noqa: E402
from celery import current_app  # noqa: E402
from django.contrib.auth import get_user_model  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import close_old_connections, connection, transaction  # noqa: E402
from django.db.models import Count  # noqa: E402

from orchestrator.access import identities, privileges  # noqa: E402
from orchestrator.access.authorizer import AtTerminal  # noqa: E402
from orchestrator.access.privileges import rabbitmq  # noqa: E402
from orchestrator.automation import (  # noqa: E402
    owners,
    recording,
    rules,
    trigger_types,
    triggers,
)
from orchestrator.automation.models import Assignment, Enforcement, Event, Timer  # noqa: E402
from orchestrator.automation.sensors import catalogue  # noqa: E402
from orchestrator.core import (  # noqa: E402
    brokers,
    clock,
    dead_letters,
    executions,
    fleet,
    investigations,
    messages,
    packs,
    publisher,
    relay,
    topology,
)
from orchestrator.core.models import (  # noqa: E402
    DLQEntry,
    Execution,
    ExecutionEvent,
    Pack,
    ReleaseChunk,
    Tick,
    Worker,
    WorkerEvent,
)
from orchestrator.core.models.time_ordered import uuid7_floor  # noqa: E402
from orchestrator.inquiries import answering  # noqa: E402
from orchestrator.inquiries.models import Inquiry  # noqa: E402
from orchestrator.notifications.models import Listener  # noqa: E402
from orchestrator.policies import changes as policies  # noqa: E402
from orchestrator.policies import definitions as policy_definitions  # noqa: E402
from orchestrator.policies.models import PolicySlot, PolicyWait  # noqa: E402
from orchestrator.queues import changes as queues  # noqa: E402
from orchestrator.queues import definitions as queue_definitions  # noqa: E402
from orchestrator.queues.models import Gate, Ticket, WorkQueue  # noqa: E402
from orchestrator.workflows import engine, task_templates  # noqa: E402
from orchestrator.workflows.messages import requested as tasks_requested  # noqa: E402
from orchestrator.workflows.models import Step, Task, TransitionRecord  # noqa: E402

CLIENT = "scenario"
POLL_SECONDS = 0.005


def spoil_release() -> None:
    """Change a byte of the content of every release in the store."""
    for chunk in ReleaseChunk.objects.filter(number=0):
        data = bytes(chunk.data)
        chunk.data = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        chunk.save()


def ping() -> None:
    """It is up. Asks no server."""


def prepare(*, pack_paths: list[str]) -> None:
    """Make the database and install the packs."""
    call_command("migrate", verbosity=0)
    for path in pack_paths:
        packs.install(packs.load(Path(path)), now=clock.now())


def token(*, name: str, role: str) -> str:
    """An API token of a service account of its own, which has this role; its text."""
    output = io.StringIO()
    call_command("token", "create", name, stdout=output)
    call_command("access", "grant", f"service:{name}", role, stdout=io.StringIO())
    return output.getvalue().strip()


def make_administrator(*, name: str, password: str) -> None:
    """A user who may do everything in the admin."""
    get_user_model().objects.create_superuser(name, password=password)


def make_logins(*, virtual_host: str, password: str) -> dict[str, Any]:
    """Make the roles of each service in the database; returns the definitions of the broker's
    users."""
    call_command("privileges", "postgresql", apply=True, stdout=io.StringIO())
    users = [
        rabbitmq.BrokerUser(privileges.login(service), rabbitmq.permissions(service), password)
        for service in privileges.SERVICES
    ]
    return rabbitmq.definitions(users, virtual_host=virtual_host)


def submit(*, news: list[dict[str, Any]]) -> list[UUID]:
    """Ask for executions; the keywords are those of `executions.NewExecution`."""
    wanted = [executions.NewExecution(**new) for new in news]
    rows = executions.request_many(wanted, requested_by=CLIENT, now=clock.now())
    return [row.pk for row in rows]


def make_queue(*, name: str, **values: Any) -> None:
    """Make or change a queue; the keywords are the keys of a queue file."""
    file = queue_definitions.source_of(values, name=name)
    queue_definitions.check_queue(file)
    assert file.problems == []
    queues.apply(queue_definitions.new_queue(file.value), actor=CLIENT, now=clock.now())


def make_policy(*, ref: str, **values: Any) -> None:
    """Make a policy: of concurrency and of everything, unless the keywords say otherwise."""
    document = {"ref": ref, "kind": "concurrency", "scope": "global", **values}
    source = policy_definitions.source_of(document, name=ref)
    policy_definitions.check_document(source)
    assert source.problems == []
    policies.create(policy_definitions.of_document(document), now=clock.now())


def policy_rows() -> tuple[int, int]:
    """The slots and the waits that are there."""
    return PolicySlot.objects.count(), PolicyWait.objects.count()


def order_queue(*, name: str, verb: str) -> None:
    """Pause, resume or retire a queue."""
    getattr(queues, verb)(name, reason="a test", actor=CLIENT, now=clock.now())


def most_held(*, queue: str) -> int:
    """The most executions of a queue that were claimed and not ended at one time, by the
    history."""
    events = ExecutionEvent.objects.filter(execution__queue=queue).order_by("pk")
    held: set[UUID] = set()
    most = 0
    for execution_id, to_status in events.values_list("execution_id", "to_status"):
        (held.add if to_status in ("running", "canceling") else held.discard)(execution_id)
        most = max(most, len(held))
    return most


def cancel(*, id: UUID) -> str:
    return str(executions.cancel(execution_id=id, actor=CLIENT, now=clock.now()).status)


def cancel_without_message(*, id: UUID) -> str:
    """Cancel, and lose the message to the worker."""
    with mock.patch.object(relay, "send_soon"):
        return cancel(id=id)


def forge_cancel(*, id: UUID, attempt: int, worker_id: int) -> None:
    """Send a worker the message of a cancel that nobody has asked for."""
    publisher.send([messages.cancel(execution_id=id, attempt=attempt, worker_id=worker_id)])


def broadcast(*, command: str, arguments: dict[str, Any]) -> list[Any]:
    """Send an order of Celery's remote control to all its processes; returns their answers."""
    return list(
        current_app.control.broadcast(command, arguments=arguments, reply=True, timeout=1.5) or []
    )


def request_task(*, name: str, context: dict[str, Any], key: str | None) -> UUID:
    """A task of one of the example templates."""
    new = engine.NewTask(
        namespace="examples", name=name, version="1.0.0", context=context, idempotency_key=key
    )
    return engine.request(new, requested_by=CLIENT, now=clock.now()).pk


def task(*, id: UUID) -> SimpleNamespace:
    """A task, with its steps by their names and the states that it went through."""
    steps = Step.objects.filter(task_id=id).values()
    records = TransitionRecord.objects.of_task(id).filter(step__isnull=True)
    return SimpleNamespace(
        **Task.objects.filter(pk=id).values().get(),
        steps={row["name"]: SimpleNamespace(**row) for row in steps},
        went_through=list(records.values_list("to_state", flat=True)),
    )


def request_task_in(*, namespace: str, name: str, context: dict[str, Any]) -> UUID:
    """A task of a template that a pack of the tests brings."""
    new = engine.NewTask(namespace=namespace, name=name, version="1.0.0", context=context)
    return engine.request(new, requested_by=CLIENT, now=clock.now()).pk


def printed(*, commands: list[list[str]]) -> list[str]:
    """What `manage.py` prints for each of these."""
    outputs = [io.StringIO() for _ in commands]
    for arguments, output in zip(commands, outputs, strict=True):
        call_command(*arguments, stdout=output)
    return [output.getvalue() for output in outputs]


def repair(*, verb: str, id: UUID, **values: Any) -> str:
    """One of the actions on a step; its state afterwards."""
    repaired = getattr(engine, verb)(
        id, reason="a scenario", actor=CLIENT, now=clock.now(), **values
    )
    return str(repaired.state)


def cancel_task(*, id: UUID) -> None:
    engine.cancel(id, reason="a scenario", actor=CLIENT, now=clock.now())


def execution_rows(*, ids: list[UUID] | None) -> list[SimpleNamespace]:
    """These executions, or all."""
    rows = Execution.objects.order_by("pk")
    wanted = rows if ids is None else rows.filter(pk__in=ids)
    return [SimpleNamespace(**row) for row in wanted.values()]


def events(*, id: UUID) -> list[SimpleNamespace]:
    """The history of an execution, oldest first."""
    return [SimpleNamespace(**row) for row in ExecutionEvent.objects.of(id).values()]


@transaction.atomic
def copy_as_old(*, id: UUID, days: int) -> tuple[UUID, int]:
    """Write a copy of an execution and its history, as if all had been so many days ago; its id,
    and how many events it has."""
    earlier = timedelta(days=days)
    row = Execution.objects.get(pk=id)
    for field in Execution._meta.concrete_fields:
        at = getattr(row, field.attname)
        if isinstance(at, datetime):
            setattr(row, field.attname, at - earlier)
    row.pk = uuid7_floor(row.created_at)
    row.save(force_insert=True)
    history = list(ExecutionEvent.objects.of(id))
    for event in history:
        event.pk, event.execution_id, event.at = None, row.pk, event.at - earlier
        event.save(force_insert=True)
    return row.pk, len(history)


def accounts() -> dict[UUID, tuple[str, list[SimpleNamespace]]]:
    """The status and the history of each execution, of one moment."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        found = histories()
        statuses = Execution.objects.values_list("pk", "status")
        return {id: (status, found.get(id, [])) for id, status in statuses}


def histories() -> dict[UUID, list[SimpleNamespace]]:
    """The history of each execution that has one, oldest first."""
    found: dict[UUID, list[SimpleNamespace]] = {}
    for row in ExecutionEvent.objects.order_by("pk").values():
        found.setdefault(row["execution_id"], []).append(SimpleNamespace(**row))
    return found


def all_workers() -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for row in Worker.objects.values()]


def order(*, verb: str, worker: str) -> None:
    """`cordon`, `uncordon`, `drain` or `retire` a worker, as the API does."""
    verbs = {
        "cordon": fleet.cordon,
        "uncordon": fleet.uncordon,
        "drain": executions.drain_worker,
        "retire": fleet.retire,
    }
    worker_id = Worker.objects.get(name=worker).pk
    verbs[verb](worker_id=worker_id, actor=CLIENT, reason="a test", now=clock.now())


def worker_events(*, worker: str) -> list[SimpleNamespace]:
    """What happened to a worker, oldest first."""
    rows = WorkerEvent.objects.filter(worker__name=worker).order_by("pk")
    return [SimpleNamespace(**row) for row in rows.values()]


def ticks() -> dict[str, datetime]:
    """When each maintenance function last ran."""
    return dict(Tick.objects.values_list("name", "ran_at"))


def request_task_of(*, definition: dict[str, Any]) -> UUID:
    """Install this template, and ask for a task of it."""
    task_templates.install_templates([definition], now=clock.now())
    where = {key: definition[key] for key in ("name", "version")}
    new = engine.NewTask(namespace=definition["namespace_name"], **where)
    return engine.request(new, requested_by=CLIENT, now=clock.now()).pk


def open_inquiries() -> list[SimpleNamespace]:
    """The questions that nobody has answered yet."""
    rows = Inquiry.objects.open().order_by("pk").values("id", "prompt", "asked_by_execution_id")
    return [SimpleNamespace(**row) for row in rows]


def answer_inquiries(*, ids: list[UUID], pause_seconds: float = 0.0) -> None:
    """Answer each of them, with this pause between two."""
    by = AtTerminal("cli:approver")
    for id in ids:
        answering.respond(id, {"approved": True}, by=by, now=clock.now())
        time.sleep(pause_seconds)


def answered_at(*, ids: list[UUID]) -> list[Any]:
    """When each of them was answered."""
    known = dict(Inquiry.objects.filter(pk__in=ids).values_list("pk", "answered_at"))
    return [known[id] for id in ids]


def listeners_wanting() -> list[int]:
    """The processes that say that somebody listens to them."""
    names = Listener.objects.wanting(clock.now()).values_list("name", flat=True)
    return [int(name.rpartition(":")[2]) for name in names]


def owner_of_rules(*, name: str, is_person: bool) -> None:
    """A person or a service account, who may do what rules do in the packs of the scenarios."""
    if is_person:
        get_user_model().objects.create_user(name)
    else:
        call_command("access", "create", name, stdout=io.StringIO())
    kind = "user" if is_person else "service"
    packs = [f"--pack={pack}" for pack in ("core", "scenario")]
    call_command("access", "grant", f"{kind}:{name}", "author", *packs, stdout=io.StringIO())


def install_rules(
    *, news: list[dict[str, Any]], pack: str = "scenario", owner: str | None = None
) -> None:
    """Install rules, by default on the orders of a pack; the keywords are those of
    `rules.NewRule`."""
    orders = trigger_types.NewType(ref=f"{pack}.order")
    of = Pack.objects.get(name=pack)
    trigger_types.install_types([orders], pack=of, now=clock.now())
    principal = None
    if owner is not None:
        identity = identities.find(owner, now=clock.now())
        principal = owners.principals([identity.pk])[identity.pk]
    for new in news:
        rule = rules.NewRule(**{"trigger_type": orders.ref, **new})
        rules.install(rule, now=clock.now(), principal=principal)


def switch_rule(*, ref: str, enabled: bool) -> None:
    (rules.enable if enabled else rules.disable)(ref, now=clock.now())


def switch_rules(*, refs: list[str], enabled: bool) -> None:
    for ref in refs:
        switch_rule(ref=ref, enabled=enabled)


def switch_and_report(*, ref: str, numbers: list[int]) -> list[tuple[UUID, UUID]]:
    """For each number: enable the rule, send an event, disable it, send another, and wait until
    rules were asked about that; their ids."""
    sent = []
    for number in numbers:
        switch_rule(ref=ref, enabled=True)
        [before] = report_orders(numbers=[2 * number])
        switch_rule(ref=ref, enabled=False)
        [after] = report_orders(numbers=[2 * number + 1])
        while Event.objects.unevaluated().filter(pk=after).exists():
            time.sleep(POLL_SECONDS)
        sent.append((before, after))
    return sent


def overdue_timers() -> int:
    return Timer.objects.due(clock.now() - timedelta(seconds=1)).count()


def ticks_of_timers() -> list[tuple[Any, ...]]:
    """(trigger, due, received, how many before it have no event) of each event of a timer."""
    rows = Event.objects.filter(source="timer").order_by("pk")
    return list(rows.values_list("trigger_id", "occurred_at", "received_at", "payload__missed"))


def report_orders(
    *, numbers: list[int], pack: str = "scenario", with_message: bool = True
) -> list[UUID]:
    """Report orders with these numbers, which are their keys; the ids of their events."""
    trigger = triggers.find(f"{pack}.order")
    news = [
        recording.NewEvent(
            trigger=trigger, payload={"number": number}, key=f"{number}", source="api"
        )
        for number in numbers
    ]
    lost = contextlib.nullcontext() if with_message else mock.patch.object(relay, "send_soon")
    with lost:
        return [each.event_id for each in recording.record_many(news, now=clock.now())]


def recorded_events(*, source: str) -> list[SimpleNamespace]:
    rows = Event.objects.filter(source=source).order_by("pk")
    return [SimpleNamespace(**row) for row in rows.values()]


def count_of_events(*, type: str) -> int:
    return Event.objects.filter(type_ref=type).count()


def numbers_of(*, type: str) -> list[tuple[int, int]]:
    """The numbers that were counted, each with how many events it is."""
    column = "payload__number"
    rows = Event.objects.filter(type_ref=type).order_by().values(column)
    return sorted((row[column], row["n"]) for row in rows.annotate(n=Count("pk")))


def versions_of(*, type: str) -> list[int]:
    """The versions of the code that counted, in the order of their first numbers."""
    rows = Event.objects.filter(type_ref=type).order_by("pk")
    return list(dict.fromkeys(rows.values_list("payload__version", flat=True)))


def sensors() -> dict[str, SimpleNamespace]:
    """The assignment of each sensor."""
    rows = Assignment.objects.select_related("sensor", "service")
    columns = ("state", "fence", "cursor", "problem", "restarts", "refused")
    return {
        row.sensor.ref: SimpleNamespace(
            service=row.service.name if row.service else None,
            **{name: getattr(row, name) for name in columns},
        )
        for row in rows
    }


def restart_sensor(*, ref: str) -> None:
    catalogue.restart(ref, now=clock.now(), actor=CLIENT)


def enforcements(*, event_ids: list[UUID]) -> list[SimpleNamespace]:
    """The answers of rules to these events."""
    rows = Enforcement.objects.filter(event__in=event_ids).order_by("pk")
    columns = ("rule__ref", "event_id", "state", "reason", "execution_id")
    return [SimpleNamespace(**row) for row in rows.values(*columns)]


def unevaluated_events() -> int:
    return Event.objects.unevaluated().count()


def dlq_entries() -> list[SimpleNamespace]:
    rows = list(DLQEntry.objects.order_by("pk").values())
    for row in rows:
        row["raw_body"] = None if row["raw_body"] is None else bytes(row["raw_body"])
    return [SimpleNamespace(**row) for row in rows]


def investigate(*, execution_id: UUID, detail: str) -> UUID:
    """Open an entry about an execution, and close it; its id."""
    now = clock.now()
    entry = investigations.open_manually(
        "execution", execution_id, detail=detail, now=now, actor=CLIENT
    )
    id, cancelled = entry.dlq_entry_uuid, DLQEntry.Resolution.CANCELLED
    return investigations.close(id, resolution=cancelled, now=now, actor=CLIENT).dlq_entry_uuid


def drain() -> None:
    dead_letters.drain()


def give_back(*, worker: str) -> None:
    """Send elsewhere what is dispatched to this worker, as it does itself when it is unfit."""
    worker_id = Worker.objects.get(name=worker).pk
    executions.give_back(worker_id=worker_id, now=clock.now(), actor=CLIENT)


def enlist(*, name: str) -> int:
    """Make a worker of this name without starting one; returns its id."""
    return Worker.objects.get_or_create(name=name)[0].pk


def keep_fresh(*, id: int, runtimes: list[str]) -> None:
    """Write a worker's row as if it were up with a fresh heartbeat, which it is not."""
    Worker.objects.filter(pk=id).update(
        status=Worker.Status.ACTIVE,
        heartbeat_at=clock.now(),
        gone_at=None,
        capacity=4,
        runtimes=runtimes,
    )


def dispatch_again(*, id: UUID, attempt: int, worker_id: int, copies: int) -> int:
    """Publish copies of a dispatch message; returns how many no queue took."""
    message = messages.dispatch([(id, attempt)], worker_id=worker_id)
    return len(publisher.send([message] * copies))


def publish(
    *, body: bytes, queue: str, headers: dict[str, Any] | None = None, **properties: Any
) -> None:
    """Put any bytes into a queue, past the publisher."""
    with brokers.connection() as link:
        channel: Any = link.default_channel
        message = channel.prepare_message(
            body, headers=headers or {}, properties={"delivery_mode": 2}, **properties
        )
        channel.basic_publish(message, exchange="", routing_key=queue)


def declare_worker_queues(*, id: int) -> None:
    with brokers.connection() as link:
        topology.declare(link.default_channel, topology.worker_queues(id))


def queues_of_worker(*, id: int) -> list[tuple[str, str, str]]:
    """(queue, exchange, routing key) of its dispatches, and of its cancels."""
    return [(spec.name, spec.exchange, spec.routing_key) for spec in topology.worker_queues(id)]


def delete_worker_queues(*, id: int) -> None:
    with brokers.connection() as link:
        channel: Any = link.default_channel
        for spec in topology.worker_queues(id):
            channel.queue_delete(spec.name)


def declare_otherwise(*, name: str, ttl_ms: int) -> None:
    """Delete a queue, and declare it with another TTL before anybody else declares it."""
    spec = topology.find(name)
    assert spec is not None
    with brokers.connection() as link:
        while True:
            channel: Any = link.channel()
            channel.queue_delete(name)
            with contextlib.suppress(PreconditionFailed):  # somebody was faster
                changed = replace(spec, arguments=spec.arguments | {"x-message-ttl": ttl_ms})
                changed.queue()(channel).declare()
                return


def delete_exchange(*, name: str) -> None:
    with brokers.connection() as link:
        channel: Any = link.default_channel
        channel.exchange_delete(name)


def unbind_all(*, worker_ids: list[int]) -> None:
    """Take all bindings to our exchanges away; the queues stay."""
    with brokers.connection() as link:
        channel: Any = link.default_channel
        for spec in _specs(worker_ids):
            if spec.exchange:
                channel.queue_unbind(spec.name, spec.exchange, spec.routing_key)


def delete_everything(*, worker_ids: list[int]) -> None:
    """Every queue and every exchange."""
    with brokers.connection() as link:
        channel: Any = link.default_channel
        for spec in _specs(worker_ids):
            channel.queue_delete(spec.name)
        for exchange in topology.exchange_purposes():
            channel.exchange_delete(exchange)


def is_whole(*, worker_ids: list[int]) -> bool:
    """Whether every exchange, queue and binding is there: sends messages about nothing, past the
    publisher, which would declare what is missing."""
    nothing = uuid4()
    probes = [
        *messages.requested([nothing]),
        *messages.completed([nothing]),
        *tasks_requested([nothing]),
        *(messages.dispatch([(nothing, 1)], worker_id=id) for id in worker_ids),
        *(messages.cancel(execution_id=nothing, attempt=1, worker_id=id) for id in worker_ids),
    ]
    returned: list[Any] = []
    with brokers.connection() as link:
        channel: Any = link.default_channel
        channel.events["basic_return"].add(lambda *told: returned.append(told))
        channel.confirm_select()
        try:
            for message in probes:
                properties = message.properties()
                channel.basic_publish_confirm(
                    channel.prepare_message(
                        message.body(),
                        content_type=properties.pop("content_type"),
                        content_encoding=properties.pop("content_encoding"),
                        headers=message.headers(),
                        properties=properties,
                    ),
                    exchange=topology.executions_exchange(),
                    routing_key=message.routing_key,
                    mandatory=True,
                )
            channel.exchange_declare(topology.dead_letter_exchange(), "topic", passive=True)
        except NotFound:
            return False
    return not returned


def consumers(*, worker_ids: list[int]) -> list[int]:
    """How many consumers each queue has that is consumed all the time."""
    with brokers.connection() as link:
        channel: Any = link.default_channel
        return [
            channel.queue_declare(spec.name, passive=True).consumer_count
            for spec in _specs(worker_ids)
            if spec != topology.dead_letter_queue()
        ]


def _specs(worker_ids: list[int]) -> list[topology.QueueSpec]:
    return [
        *topology.shared_queues(),
        *(spec for id in worker_ids for spec in topology.worker_queues(id)),
    ]


def tap(*, name: str, routing_key: str) -> None:
    """Bind a queue of our own to the executions exchange."""
    with brokers.connection() as link:
        channel: Any = link.default_channel
        topology.declare(channel, [])
        channel.queue_declare(name, durable=True, auto_delete=False)
        channel.queue_bind(name, topology.executions_exchange(), routing_key)


def taken(*, queue: str) -> list[Any]:
    """Take all messages that are in a queue: their bodies."""
    bodies = []
    with brokers.connection() as link:
        channel: Any = link.default_channel
        while (raw := channel.basic_get(queue, no_ack=True)) is not None:
            bodies.append(json.loads(channel.message_to_python(raw).body))
    return bodies


def queue_length(*, name: str) -> int | None:
    """How many messages are ready in a queue; None if there is no such queue."""
    with brokers.connection() as link:
        channel: Any = link.default_channel
        try:
            return int(channel.queue_declare(name, passive=True).message_count)
        except NotFound:
            return None


def queue_names() -> dict[str, str]:
    return {
        "requests": topology.requests_queue().name,
        "completed": topology.completed_queue().name,
        "maintenance": topology.maintenance_queue().name,
        "dead_letters": topology.dead_letter_queue().name,
    }


def make_gate(*, name: str, values: dict[str, Any], gate: dict[str, Any]) -> None:
    """A queue with a gate, or with other values if there is one."""
    now = clock.now()
    queue, _ = WorkQueue.objects.update_or_create(
        name=name, defaults=values, create_defaults=values | {"created_at": now, "updated_at": now}
    )
    Gate.objects.update_or_create(queue=queue, defaults=gate)


def close_queue(*, name: str) -> None:
    WorkQueue.objects.filter(name=name).update(accepts=False)


def make_queues(*, names: list[str]) -> None:
    now = clock.now()
    for name in names:
        WorkQueue.objects.create(name=name, created_at=now, updated_at=now)


def queue_id(*, name: str) -> int:
    return WorkQueue.objects.get(name=name).pk


def tickets() -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for row in Ticket.objects.order_by("pk").values()]


def main() -> None:
    link = Connection(socket.socket(fileno=int(sys.argv[1])).detach())
    with contextlib.suppress(EOFError):
        while True:
            number, name, keywords = link.recv()
            close_old_connections()  # the database may have been restarted since the last call
            try:
                answer = (number, True, globals()[name](**keywords))
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
                answer = (number, False, f"{type(error).__name__}: {error}")
            link.send(answer)


if __name__ == "__main__":
    main()
