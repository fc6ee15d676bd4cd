"""Orders about lanes of work: pause, resume, retire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import acts, row_acts
from orchestrator.console.acts import Done
from orchestrator.console.kept import forget
from orchestrator.console.look import Look
from orchestrator.console.row_acts import Dialogs, RowAct, named
from orchestrator.queues import changes
from orchestrator.queues.models import WorkQueue

NEEDS = "queues.change"
LANES = "lanes"
"""The name of what is kept of all lanes for whoever looks."""


def _ordered(verb: Callable[..., WorkQueue]) -> Callable[[Any, Look, str], WorkQueue]:
    """The queue keeps the reason."""

    def order(queue: WorkQueue, look: Look, reason: str) -> WorkQueue:
        return verb(queue.name, reason=reason, actor=look.user.actor, now=look.now)

    return order


ORDERS = named(
    RowAct(
        "pause",
        _ordered(changes.pause),
        NEEDS,
        lambda queue: queue.retired_at is None and not queue.is_paused,
        "Start nothing of {row}?",
        "Nothing more of it is given to workers; what they have goes on. It accepts new "
        "executions, which wait. Their deadlines do not.",
        "Paused",
    ),
    RowAct(
        "resume",
        _ordered(changes.resume),
        NEEDS,
        lambda queue: queue.retired_at is None and queue.is_paused,
        "Start work of {row} again?",
        "What waits is given to the workers that serve it.",
        "Resumed",
    ),
    RowAct(
        "retire",
        _ordered(changes.retire),
        NEEDS,
        lambda queue: queue.retired_at is None,
        "Take {row} out of use?",
        "It accepts nothing more. Once none of its executions is open it is out of use; until "
        "then this is refused, and to be repeated.",
        "Retired",
    ),
)


def url(name: str) -> str:
    """The page of a lane."""
    return reverse("console:queue", args=[name])


def of_lane(queue: WorkQueue, look: Look) -> Dialogs:
    return row_acts.dialogs(ORDERS, queue, look, reverse("console:queue_order", args=[queue.name]))


@acts.verb
def give(look: Look, request: HttpRequest, name: str) -> Done:
    """Do one of the orders to a lane, with the reason that is kept."""
    try:
        order, _ = row_acts.do(ORDERS, changes.find(name), look, request)
    finally:
        forget(LANES)
    return Done(f"{order.done}: {name}.", url(name))
