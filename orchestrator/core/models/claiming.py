"""The claim, for both databases.

On PostgreSQL one statement decides which attempts this worker may start, claims them, and returns
their rows. SQLite, which has one writer at a time anyway, gets a SELECT and then an UPDATE in one
transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from django.db import connections, models, transaction

from orchestrator.core.models.fleet import Worker
from orchestrator.core.state_machine import MachineQuerySet, Move, Terms
from orchestrator.core.statements import Rows
from orchestrator.core.states import AttemptKey, ExecutionStatus

E = TypeVar("E", bound=models.Model)
"""Executions; naming the model here would be a circular import."""

ONLY_TO_BE_LOOKED_AT = (
    "requested_by",
    "request_reason",
    "correlation_id",
    "idempotency_key",
    "key_owner",
    "created_at",
    "cancel_requested_at",
    "ended_at",
    "wait_reason",
    "reason",
    "cancel_reason",
)
"""Columns that nothing reads while an execution runs: parsing their times took a tenth of a
worker's processor time."""


TERMS = Terms(
    columns=("worker_id", "start_by", "deadline_at"),
    condition=f"""locked.worker_id = %(worker_id)s
        AND locked.start_by > %(now)s AND locked.deadline_at > %(now)s
        AND EXISTS (SELECT FROM {Worker._meta.db_table} WHERE id = %(worker_id)s
                    AND incarnation = %(incarnation)s AND gone_at IS NULL)
    """,
    assignments=(
        "worker_incarnation = %(incarnation)s",
        """run_deadline_at = %(run_grace)s + least(
            %(now)s + subject.timeout_seconds * interval '1 second', subject.deadline_at)""",
    ),
)
"""The terms of a claim: what it asks for besides the comparison, and writes, on PostgreSQL."""


class ClaimQuerySet(MachineQuerySet[E]):
    def claim(
        self,
        attempts: Collection[AttemptKey],
        *,
        worker_id: int,
        incarnation: int,
        run_grace: timedelta,
        now: datetime,
        actor: str,
    ) -> list[E]:
        """Move these attempts to running if they are dispatched to this life of this worker and not
        overdue; returns those rows as they are then.

        Several attempts of one execution may be asked for at once: only its present one moves. Each
        gets its `run_deadline_at`: its timeout, cut short by its deadline, and the grace.
        """
        if not attempts:
            return []
        asked = attempts, worker_id, incarnation, run_grace, now, actor
        if connections[self.db].vendor == "postgresql":
            return _claim_postgresql(self, *asked)
        with transaction.atomic(using=self.db):  # the only writer, from before its SELECT
            return _claim_portably(self, *asked)


@cache
def _claimed(model: type[E]) -> Rows[E]:
    return Rows(model, without=("result", *ONLY_TO_BE_LOOKED_AT))


def _claim_postgresql(
    queryset: ClaimQuerySet[E],
    attempts: Collection[AttemptKey],
    worker_id: int,
    incarnation: int,
    run_grace: timedelta,
    now: datetime,
    actor: str,
) -> list[E]:
    moves = [Move(id, ExecutionStatus.SCHEDULED, attempt) for id, attempt in set(attempts)]
    values = {
        "now": now,
        "worker_id": worker_id,
        "incarnation": incarnation,
        "run_grace": run_grace,
    }
    rows = _claimed(queryset.model)
    return queryset.transition_on_terms("claim", moves, TERMS, values, rows, now=now, actor=actor)


def _claim_portably(
    queryset: ClaimQuerySet[E],
    attempts: Collection[AttemptKey],
    worker_id: int,
    incarnation: int,
    run_grace: timedelta,
    now: datetime,
    actor: str,
) -> list[E]:
    offered: Any = queryset.defer("result", *ONLY_TO_BE_LOOKED_AT).filter(
        pk__in={id for id, _ in attempts},
        status=ExecutionStatus.SCHEDULED,
        worker_id=worker_id,
        start_by__gt=now,
        deadline_at__gt=now,
        worker__incarnation=incarnation,
        worker__gone_at__isnull=True,
    )
    wanted = set(attempts)
    executions = [execution for execution in offered if execution.key in wanted]
    moves = []
    for execution in executions:
        timeout = timedelta(seconds=execution.timeout_seconds)
        execution.run_deadline_at = min(now + timeout, execution.deadline_at) + run_grace
        execution.worker_incarnation = incarnation
        values = {
            "worker_incarnation": incarnation,
            "run_deadline_at": execution.run_deadline_at,
        }
        moves.append(Move(execution.pk, execution.status, execution.attempt, values))
        execution.status, execution.started_at = ExecutionStatus.RUNNING, now
    moved = queryset.transition_many("claim", moves, now=now, actor=actor)
    return [execution for execution in executions if execution.pk in moved]
