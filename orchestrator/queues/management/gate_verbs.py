"""The verbs of `manage.py queue` that are about gates: send, tickets, tell-again, policies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from django.core.management.base import CommandError

from orchestrator.core import topology
from orchestrator.core.management import arguments, output
from orchestrator.core.management.tables import Table
from orchestrator.core.shown.documents import document
from orchestrator.queues import changes
from orchestrator.queues.gates import choosing, doors, orders, replies
from orchestrator.queues.models import Gate, Ticket
from orchestrator.queues.shown import tickets as shown

PERMISSIONS = {
    "send": "queues.change",
    "tickets": "queues.read",
    "tell-again": "queues.change",
    "policies": "queues.read",
}
LOOK_EVERY_SECONDS = 0.1


def add_to(verbs: Any) -> None:
    """Add the verbs to the parser of `manage.py queue`."""
    send = verbs.add_parser("send", help="Publish a task message to a gate, as a client does.")
    send.add_argument("name")
    send.add_argument("--classifier", default="", help="It chooses the action.")
    send.add_argument("--data", default="{}", help="The task's data, as the gate's codec reads it.")
    send.add_argument("--task-id", help="(default: a new one)")
    send.add_argument("--priority", type=int)
    send.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="Wait until its answer is confirmed, and show it. The answer stays in its queue.",
    )
    output.add_json(send)
    tickets = verbs.add_parser("tickets", help="The task messages of a gate, the newest first.")
    tickets.add_argument("name")
    tickets.add_argument("--untold", action="store_true", help="Only those without an answer yet.")
    arguments.add_limit(tickets, default=50)
    output.add_json(tickets)
    again = verbs.add_parser(
        "tell-again", help="Answer again: all that is due, or these tickets even if they are told."
    )
    again.add_argument("name")
    again.add_argument("ids", nargs="*", type=int, metavar="TICKET")
    output.add_json(again)
    policies = verbs.add_parser(
        "policies", help="Print what the broker should have for the queues of gates; apply nothing."
    )
    policies.add_argument("names", nargs="*", metavar="NAME")
    output.add_json(policies)


class GateVerbs:
    """Carries the verbs out for a command."""

    def __init__(self, command: output.MusterCommand) -> None:
        self.command = command
        self.verbs: dict[str, Callable[..., None]] = {
            "send": self.send,
            "tickets": self.tickets,
            "tell-again": self.tell_again,
            "policies": self.policies,
        }

    def send(
        self,
        *,
        name: str,
        classifier: str,
        data: str,
        task_id: str | None,
        priority: int | None,
        wait: float | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        gate = _gate(name)
        changes.require_sender(gate, principal=self.command.principal)
        task_id = task_id or str(uuid4())
        orders.send(
            gate, task_id=task_id, classifier=classifier, data=data.encode(), priority=priority
        )
        if wait is None:
            text = f"sent {task_id} to {gate.input_queue}"
            self._show({"task_id": task_id, "queue": gate.input_queue}, text, as_json)
            return
        ticket = _wait_until_told(gate, task_id, wait)
        answer = _answer(ticket, gate)
        self._show(answer, json.dumps(answer, indent=2), as_json)

    def tickets(
        self, *, name: str, untold: bool, limit: int, as_json: bool, **options: Any
    ) -> None:
        rows: Any = shown.of_gate(_gate(name), untold=untold)
        listed = shown.all_of(rows[:limit])
        if as_json:
            self.command.show_items(document(each) for each in listed)
        elif listed:
            self.command.show(_table(listed))
        else:
            self.command.stdout.write("No task messages")

    def tell_again(self, *, name: str, ids: list[int], as_json: bool, **options: Any) -> None:
        number = orders.tell_again(_gate(name), ids=ids or None)
        self._show({"tickets": number}, f"{number} to be answered by the next sweep", as_json)

    def policies(self, *, names: list[str], as_json: bool, **options: Any) -> None:
        gates = [_gate(name) for name in names] or list(
            Gate.objects.select_related("queue").order_by("queue__name")
        )
        exchange = topology.dead_letter_exchange()
        wanted = [
            {
                "queue": gate.queue.name,
                "broker": gate.broker,
                "pattern": "^(" + "|".join(sorted(map(_escaped, doors.consumed(gate)))) + ")$",
                "definition": doors.policy(gate, dead_letter_exchange=exchange),
            }
            for gate in gates
        ]
        if as_json:
            self.command.show_items(iter(wanted))
            return
        for each in wanted:
            definition = json.dumps(each["definition"])
            self.command.stdout.write(
                f"rabbitmqctl set_policy {each['queue']} '{each['pattern']}' "
                f"'{definition}' --apply-to queues"
            )

    def _show(self, value: dict[str, Any], text: str, as_json: bool) -> None:
        if as_json:
            self.command.show_json(value)
        else:
            self.command.stdout.write(text)


def _gate(name: str) -> Gate:
    queue = changes.find(name)
    gate = Gate.objects.filter(queue=queue).select_related("queue__action").first()
    if gate is None:
        raise CommandError(f"the queue {name} has no gate")
    return gate


def _escaped(name: str) -> str:
    return name.replace(".", r"\.")


def _wait_until_told(gate: Gate, task_id: str, seconds: float) -> Ticket:
    """Wait for the ticket of a task that was just sent. Raises CommandError."""
    until = time.monotonic() + seconds
    rows = Ticket.objects.filter(gate=gate, task_id=task_id).select_related("execution")
    while time.monotonic() < until:
        ticket = rows.order_by("-pk").first()
        if ticket is not None and ticket.told_at is not None:
            return ticket
        time.sleep(LOOK_EVERY_SECONDS)
    raise CommandError(f"{task_id} has no answer after {seconds:g} s: manage.py queue tickets")


def _answer(ticket: Ticket, gate: Gate) -> dict[str, Any]:
    """The answer as it was sent."""
    owed = replies.replies_of(
        ticket, ticket.execution, gate=gate, retry_limit=choosing.retry_limit(gate)
    )
    if not owed:
        return {"taskId": ticket.task_id, "queue": None}
    body: dict[str, Any] = json.loads(owed[0].body)
    return {"queue": owed[0].queue, **body}


def _table(tickets: Sequence[shown.TicketOut]) -> Table:
    table = Table(">id", "task", "state", ">tries", "execution", "came", "told to", "*why")
    for ticket in tickets:
        table.add_row(
            str(ticket.id),
            output.plain(ticket.task_id),
            ticket.state,
            str(ticket.tries or ""),
            str(ticket.execution_id or ""),
            output.moment(ticket.created_at),
            output.plain(ticket.told_to),
            output.plain(ticket.last_error or ticket.refused or ""),
        )
    return table
