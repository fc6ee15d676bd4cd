"""The verbs of bulk orders. For each row they call the function that API and admin call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.bulk.matching import EXECUTIONS, INVESTIGATIONS, STEPS, TASKS, Noun
from orchestrator.bulk.models import BulkOrder
from orchestrator.core import authority, executions, investigations
from orchestrator.core.authority import PermissionMissing, Principal
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows import engine
from orchestrator.workflows.models import Step

ORDER = "bulk.order"


class UnknownVerb(NotFound):
    """No verb has this name."""


class IsBeingCancelled(Conflict):
    """Somebody has cancelled it already; its worker has not confirmed it yet."""

    kind = "already-canceling"


@dataclass(frozen=True)
class Act:
    """A row, and all that its verb needs."""

    order: BulkOrder
    principal: Principal
    id: UUID
    row: Any
    now: datetime

    @property
    def common(self) -> dict[str, Any]:
        return {"actor": self.order.ordered_by, "now": self.now}


@dataclass(frozen=True)
class Verb:
    """A verb that can be ordered."""

    name: str
    title: str
    """On a button."""
    past: str
    """Of its rows: `cancelled`."""
    noun: Noun
    permission: str
    """For each row, at its place."""
    do: Callable[[Act], object]
    """Raises MusterError for a row that it refuses."""
    explanation: str
    locks: bool = False
    """The row is locked when it is looked at, as it may move by itself."""
    rows_at_once: int = 250
    """The most rows of a transaction."""
    resolutions: tuple[str, ...] = ()
    """One of these has to be said."""

    def require(self, principal: Principal, row: Any) -> None:
        """Raise PermissionMissing unless the orderer may do it, and in bulk, at the row's place."""
        for permission in (ORDER, self.permission):
            if not authority.may(principal, permission, row.place):
                raise PermissionMissing(permission, "It")


def _cancel(act: Act) -> None:
    execution: Execution = act.row
    if execution.status == ExecutionStatus.CANCELING:
        raise IsBeingCancelled
    executions.cancel(
        execution_id=act.id, reason=act.order.reason, principal=act.principal, **act.common
    )


def _run_again(act: Act) -> None:
    executions.run_again(
        act.row,
        # the order in the idempotency key: a batch that is done twice requests once
        token=f"bulk:{act.order.pk}",
        by=act.order.ordered_by,
        principal=act.principal,
        now=act.now,
        reason=act.order.reason,
    )


def _investigate(act: Act) -> None:
    investigations.open_manually(
        "execution", act.id, detail=act.order.reason, principal=act.principal, **act.common
    )


def _close(act: Act) -> None:
    resolution = DLQEntry.Resolution(act.order.resolution)
    investigations.close(act.id, resolution=resolution, note=act.order.reason, **act.common)


def _reset(act: Act) -> None:
    step: Step = act.row
    engine.reset_for_retry(step.pk, reason=act.order.reason, **act.common)


def _release(act: Act) -> None:
    engine.release(act.id, reason=act.order.reason, **act.common)


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "cancel", "Cancel", "cancelled", EXECUTIONS, "executions.cancel", _cancel,
            "What has not started never will. What is running is stopped by its worker. This "
            "cannot be undone.",
            locks=True,
        ),
        Verb(
            "again", "Run again", "requested again", EXECUTIONS, "executions.run", _run_again,
            "A new execution is requested for each, with the same parameters and options. What has "
            "not ended, and what belongs to a task, is refused.",
        ),
        Verb(
            "investigate", "Investigate", "under investigation", EXECUTIONS, "dlq.change",
            _investigate,
            "An investigation is opened for each, with the reason as its detail. The executions "
            "stay as they are.",
        ),
        Verb(
            "close", "Close", "closed", INVESTIGATIONS, "dlq.change", _close,
            "The investigations are closed, with the reason as the note. A closed one cannot be "
            "opened again.",
            resolutions=tuple(str(each) for each in DLQEntry.CLOSINGS),
        ),
        Verb(
            "reset", "Reset", "reset", STEPS, "steps.repair", _reset,
            "Each is tried again at once, with its attempts counted from 0. What runs, and what is "
            "final, is refused.",
            # a step's task is locked with it: one at a time holds up no other task
            rows_at_once=1,
        ),
        Verb(
            "release", "Release", "released", TASKS, "steps.repair", _release,
            "Executors take each up again, which was given up, as it stands. What is not in error "
            "is refused.",
            rows_at_once=1,
        ),
    )
}  # fmt: skip


def named(name: str) -> Verb:
    """The verb of this name. Raises UnknownVerb."""
    if name not in VERBS:
        raise UnknownVerb(f"Expected one of {', '.join(VERBS)}, found {name!r:.40}")
    return VERBS[name]
