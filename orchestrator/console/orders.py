"""Orders to workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import acts, row_acts
from orchestrator.console.acts import Done
from orchestrator.console.look import Look
from orchestrator.console.row_acts import Dialogs, RowAct, named
from orchestrator.core import executions, fleet
from orchestrator.core.fleet import UnknownWorker
from orchestrator.core.models import Worker


def _ordered(verb: Callable[..., Worker]) -> Callable[[Any, Look, str], Worker]:
    """The history of workers keeps the reason."""

    def order(worker: Worker, look: Look, reason: str) -> Worker:
        return verb(worker_id=worker.pk, actor=look.user.actor, reason=reason, now=look.now)

    return order


ORDERS = named(
    RowAct(
        "cordon",
        _ordered(fleet.cordon),
        "workers.order",
        lambda worker: not worker.cordoned,
        "Give {row} no more work?",
        "It continues its work, and still gets executions that are pinned to it.",
        "Cordoned",
    ),
    RowAct(
        "uncordon",
        _ordered(fleet.uncordon),
        "workers.order",
        lambda worker: worker.cordoned,
        "Give {row} work again?",
        "After a drain it gets work once it has started again.",
        "Uncordoned",
    ),
    RowAct(
        "drain",
        _ordered(executions.drain_worker),
        "workers.order",
        lambda worker: worker.is_up and worker.status != Worker.Status.DRAINING,
        "Let {row} finish and exit?",
        "It is cordoned, finishes its running executions, and exits. Executions that wait for "
        "it move to other workers now. After a restart it gets no work until it is uncordoned.",
        "Draining",
    ),
    RowAct(
        "retire",
        _ordered(fleet.retire),
        "workers.retire",
        lambda worker: not worker.is_up and worker.retired_at is None,
        "Remove the queues of {row}?",
        "For a worker that will not come back. If it registers again, it gets new queues.",
        "Retired",
    ),
)


def of_worker(worker: Worker, look: Look) -> Dialogs:
    return row_acts.dialogs(ORDERS, worker, look, reverse("console:order", args=[worker.name]))


@acts.verb
def give(look: Look, request: HttpRequest, name: str) -> Done:
    """Give a worker one of the orders, with the reason that is kept."""
    worker = Worker.objects.filter(name=name).first()
    if worker is None:
        raise UnknownWorker(f"No worker has the name {name}")
    order, _ = row_acts.do(ORDERS, worker, look, request)
    return Done(f"{order.done}: {name}.", reverse("console:worker", args=[name]))
