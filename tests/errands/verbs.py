"""What is done with errands: asked for, run, taken note of, dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import executions, investigations, messages, relay, topology
from orchestrator.core.errors import NotFound
from orchestrator.core.investigations import Subject
from orchestrator.core.metrics.exposition import counted
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.shown.values import Fact, Link
from orchestrator.core.state_machine import Move
from orchestrator.core.topology import QueueSpec
from tests.errands.models import Errand, ErrandKind
from tests.errands.states import ERRANDS, ErrandState

PATIENCE = timedelta(minutes=1)


class UnknownKindOfErrand(NotFound):
    """No pack brings errands of this name."""


def queue() -> QueueSpec:
    return topology.hot_queue("errands.queue", routing_key="errand.#", purpose="errands to run")


def ask(name: str, *, now: datetime, hint: bool = True) -> Errand:
    """Ask for an errand. Raises UnknownKindOfErrand. Without a hint the executor finds it."""
    kind = ErrandKind.objects.filter(name=name).first()
    if kind is None:
        raise UnknownKindOfErrand(f"No errand is called {name!r}")
    with transaction.atomic():
        errand = Errand.objects.create(kind=kind, created_at=now)
        if hint:
            hints = messages.about_many(
                "muster.run_errands", "errand.asked", [errand.pk], listed="errand_ids"
            )
            transaction.on_commit(lambda: relay.send_soon(hints))
    return errand


def run(errand_ids: Collection[UUID], *, now: datetime, actor: str) -> None:
    """Request an execution for each that waits for one."""
    asked = Errand.objects.filter(pk__in=errand_ids, state=ErrandState.ASKED)
    for errand in asked.select_related("kind"):
        with transaction.atomic():
            new = executions.NewExecution(
                action_ref=errand.kind.action_ref,
                parameters={"errand": str(errand.pk)},
                idempotency_key=f"errand {errand.pk}",
            )
            execution = executions.request(new, requested_by=actor, now=now)
            move = Move(errand.pk, errand.state, errand.fence, {"execution": execution})
            Errand.objects.transition_many("go", [move], now=now, actor=actor)


def note_ended(execution_ids: Collection[UUID], *, now: datetime, actor: str) -> None:
    """Those whose executions these are have ended, too."""
    mine = Errand.objects.open().filter(execution_id__in=execution_ids)
    for errand in mine.select_related("execution"):
        assert errand.execution is not None
        event = "finish" if errand.execution.status == "completed" else "drop"
        move = Move(errand.pk, errand.state, errand.fence)
        Errand.objects.transition_many(event, [move], now=now, actor=actor)


def look(*, now: datetime, actor: str) -> None:
    """Find what no message told of."""
    asked = Errand.objects.filter(state=ErrandState.ASKED)
    run(list(asked.values_list("pk", flat=True)), now=now, actor=actor)
    over = Errand.objects.open().filter(execution__ended_at__isnull=False)
    ids = [id for id in over.values_list("execution_id", flat=True) if id is not None]
    note_ended(ids, now=now, actor=actor)


def any_open() -> bool:
    return Errand.objects.open().exists()


def drop_old(*, now: datetime) -> int:
    """Drop what is too old, and have somebody look into it."""
    with transaction.atomic():
        old = list(
            Errand.objects.open().filter(created_at__lt=now - PATIENCE).select_related("kind")
        )
        investigations.open_for(
            _subjects(old), reason=DLQEntry.Reason.STALENESS_TIMEOUT, now=now, actor="errands"
        )
        moves = [Move(errand.pk, errand.state, errand.fence) for errand in old]
        Errand.objects.transition_many("drop", moves, now=now, actor="errands")
    return len(old)


def subjects(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    return _subjects(list(Errand.objects.filter(pk__in=ids).select_related("kind")))


def _subjects(errands: Sequence[Errand]) -> list[Subject]:
    return [
        Subject(
            kind="errand",
            id=errand.pk,
            name=errand.kind.name,
            state=errand.state,
            snapshot={"kind": errand.kind.name, "created_at": errand.created_at.isoformat()},
        )
        for errand in errands
    ]


def of_execution(execution: Execution) -> list[Fact]:
    """For an execution's page: the errand that it was run for."""
    found = Errand.objects.filter(execution=execution)
    return [("Errand", Link(errand, str(errand))) for errand in found]


ERRANDS_OPEN = Gauge("errands_open", "Errands that have not ended.", "state")
METRICS = (ERRANDS_OPEN,)


def metrics(now: datetime) -> Iterator[Any]:
    open_states = sorted(set(ErrandState) - ERRANDS.ended)
    numbers = counted(Errand.objects.open(), "state", open_states)
    yield ERRANDS_OPEN.by(numbers)
