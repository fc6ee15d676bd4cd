"""Boxes about a gate on the page of its queue."""

from __future__ import annotations

from datetime import datetime

from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.queues.gates import depths
from orchestrator.queues.models import Gate, Keeper, Ticket
from orchestrator.queues.shown import tickets as shown

UNTOLD_SHOWN = 20


def sections(gate: Gate, now: datetime) -> list[Section]:
    """Its queues as the broker has them, its keepers, and the answers that are owed."""
    return [_queues(gate), _keepers(gate, now), _untold(gate)]


def _queues(gate: Gate) -> Section:
    found = depths.asked(gate)
    if found is None:
        text = f"The broker {gate.broker} does not answer"
        return Section(title="Queues of the gate", body=render.message(text))
    rows = [
        (
            each.purpose,
            render.message(each.queue),
            "missing" if each.messages is None else each.messages,
            "" if each.consumers is None else each.consumers,
        )
        for each in found
    ]
    table = render.table(("For", "Queue", "Messages", "Consumers"), rows)
    return Section(title="Queues of the gate", body=table)


def _keepers(gate: Gate, now: datetime) -> Section:
    rows = [
        (render.message(keeper.name), keeper.held, render.message(keeper.problem))
        for keeper in Keeper.objects.alive(now).filter(broker=gate.broker)
    ]
    return Section(title="Keepers", body=render.table(("Executor", "Held", "Problem"), rows))


def _untold(gate: Gate) -> Section:
    rows = Ticket.objects.over().filter(gate=gate).select_related("execution").order_by("pk")
    table = render.table(
        ("Ticket", "Task", "Came", "Tries", "Why"),
        [
            (
                each.id,
                render.message(each.task_id),
                render.moment(each.created_at),
                each.tell_tries,
                render.message(each.last_error or "to be told"),
            )
            for each in shown.all_of(rows[:UNTOLD_SHOWN])
        ],
    )
    return Section(title="Answers owed", body=table)
