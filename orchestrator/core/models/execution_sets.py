"""Sets of executions: the reads that decisions are made of, each with a name."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from django.db import models, transaction
from django.db.models import F, Q

from orchestrator.core import authority, database, queue_terms
from orchestrator.core.authority import Principal
from orchestrator.core.models.catalog import Action
from orchestrator.core.models.claiming import ONLY_TO_BE_LOOKED_AT, ClaimQuerySet, E
from orchestrator.core.models.fleet import Worker
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.states import OPEN, ExecutionStatus, Lane

STARTED = (ExecutionStatus.RUNNING, ExecutionStatus.CANCELING)
DISPATCHED = (ExecutionStatus.SCHEDULED, *STARTED)
DEADLINE_GRACE = timedelta(seconds=5)
"""Time that a worker has after a deadline to stop its action and report it.

The promise of 20 s leaves 15 s to the sweep, which needs up to 13.1 s if the executor that begins
it dies or falls silent: see docs/adr/0005-maintenance-every-five-seconds.md."""
SUSPECT_FROM = 2
"""An execution that has lost this many workers may be the cause."""

SOON_OVER_SECONDS = 1.0
"""An action that has run for longer than this may well run for long."""

LONGEST_PAUSE = timedelta(seconds=10)
"""Longer than any pause of an execution that waits for a worker."""

BY_LIMIT = "policy "
"""The beginning of each `wait_reason` of what waits for a limit: such a pause may be long."""

CONTENTS = ("parameters", "result", *ONLY_TO_BE_LOOKED_AT)
"""Columns that no decision needs."""

BACKLOG = (ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING)


def may_scan(
    *, statuses: Collection[str] = (), reason: str | None = None, worker: object = None
) -> bool:
    """True if no index leads to the few executions that may have these values: a list then looks
    at `cursors.LOOKED_AT_LIMIT` of them at a time. What is open has an index."""
    if statuses and OPEN.issuperset(statuses):
        return False
    return bool(statuses or reason or worker)


class ExecutionSets(ClaimQuerySet[E]):
    """Executions of one kind or another. It knows columns, and no row: see `ExecutionQuerySet`."""

    def visible_to(self, principal: Principal, permission: str = "executions.read") -> Self:
        """Runs actions of packs for which the caller has a permission."""
        if authority.reach(principal, permission).is_everywhere:
            return self
        # a list of refs rather than a join: the index is over (action_ref, id)
        refs = Action.objects.visible_to(principal, permission).values_list("ref", flat=True)
        return self.filter(action_ref__in=list(refs))

    def open(self) -> Self:
        """Not terminal. Filters on `ended_at`, not on status: the partial index is on it."""
        return self.filter(ended_at__isnull=True)

    def in_status(self, *statuses: str) -> Self:
        """In any of these statuses. If all of them are open, only the partial index of the open
        ones is read."""
        rows = self.open() if OPEN.issuperset(statuses) else self
        return rows.filter(status__in=statuses)

    def in_queue(self, name: str | None) -> Self:
        """In this queue; None for the default one."""
        return self.filter(queue__isnull=True) if name is None else self.filter(queue=name)

    def backlog(self, now: datetime) -> Self:
        """Waits for the executor, and may be looked at now; of each queue the most urgent first.

        The executor's own pauses are never long, except those for a limit, of which another
        function takes care. One that seems to be long was written before the clock was set back.
        """
        is_due = Q(next_retry_at__isnull=True) | Q(next_retry_at__lte=now)
        is_short = ~Q(wait_reason="") & ~Q(wait_reason__startswith=BY_LIMIT)
        is_of_the_future = is_short & Q(next_retry_at__gt=now + LONGEST_PAUSE)
        return (
            self.open()
            .filter(is_due | is_of_the_future, status__in=BACKLOG, deadline_at__gt=now)
            # the queue first: then the index has this order, also for the rows of a single queue
            .order_by("queue", "-priority", "pk")
        )

    def accepted_by_a_later_clock(self, now: datetime) -> Self:
        """Open, and accepted when the clock showed more than now."""
        return self.open().filter(created_at__gt=now + PROCESSES_DIFFER_BY)

    def dispatched(self) -> Self:
        """Sent to a worker, and not claimed."""
        return self.open().filter(status=ExecutionStatus.SCHEDULED)

    def dispatched_for(self, wait: timedelta, now: datetime) -> Self:
        """Sent to a worker at least this long ago, or by a clock that was set back since."""
        latest = now + PROCESSES_DIFFER_BY
        return self.filter(Q(scheduled_at__lte=now - wait) | Q(scheduled_at__gt=latest))

    def placed_at_once(self) -> Self:
        """At the attempt that it got with its acceptance: see `executions.placing`."""
        return self.filter(attempt=1, scheduled_at=F("created_at"))

    def overdue_to_start(self, now: datetime) -> Self:
        """Dispatched, and not claimed in time. After its deadline it is `past_deadline` alone: what
        is dispatched shortly before has both limits at one moment, and one reason."""
        return self.dispatched().filter(start_by__lte=now, deadline_at__gt=now)

    def overdue_to_end(self, now: datetime) -> Self:
        """Started, and past the limit that its worker should have enforced.

        That limit is never later than the deadline, but its grace is a setting, and the promise
        must not depend on one.
        """
        out_of_grace = Q(deadline_at__lte=now - DEADLINE_GRACE)
        return self.open().filter(Q(run_deadline_at__lte=now) | out_of_grace, status__in=STARTED)

    def overdue_by_deadline(self, now: datetime) -> Self:
        """Started, and not over although the grace after the deadline is."""
        return self.open().filter(deadline_at__lte=now - DEADLINE_GRACE, status__in=STARTED)

    def past_deadline(self, now: datetime) -> Self:
        """Must be over by now, and did not start."""
        return self.open().filter(deadline_at__lte=now).exclude(status__in=STARTED)

    def suspects(self) -> Self:
        """Open, and has lost enough workers to be suspect; the oldest first."""
        return self.open().filter(lost_workers__gte=SUSPECT_FROM).order_by("pk")

    def offered_to(self, *, worker_id: int, incarnation: int, now: datetime) -> Self:
        """Dispatched to this life of this worker, which may still claim it."""
        return self.unclaimed(now).filter(
            deadline_at__gt=now,
            worker_id=worker_id,
            worker__incarnation=incarnation,
            worker__gone_at__isnull=True,
        )

    def started_by(self, *, worker_id: int, incarnation: int) -> Self:
        """Claimed by this life of this worker, and not ended."""
        return self.open().filter(
            status__in=STARTED, worker_id=worker_id, worker_incarnation=incarnation
        )

    def held_by(self, worker: Worker) -> Self:
        """Dispatched to, or running on, this worker in any of its incarnations."""
        return self.open().filter(status__in=DISPATCHED, worker=worker)

    def unclaimed(self, now: datetime) -> Self:
        """Dispatched, not claimed, and still in time for it."""
        return self.dispatched().filter(start_by__gt=now)

    def load_by_worker(self) -> dict[int, int]:
        """The number of executions that each worker holds, by worker id."""
        return self._count_by_worker(DISPATCHED)

    def load_by_subscription(
        self, queues: Collection[str] | None = None
    ) -> dict[tuple[int, str], int]:
        """The number of executions that each worker holds of each queue, by worker id and
        subscription; of these queues, or of all with a name."""
        queued = Q(queue__isnull=False) if queues is None else Q(queue__in=queues)
        rows = self.open().filter(queued, status__in=DISPATCHED, worker__isnull=False)
        counted = rows.order_by().values_list("worker_id", "queue", "lane")
        return {
            (worker_id, queue_terms.subscription(queue, is_retry=lane == Lane.RETRY)): held
            for worker_id, queue, lane, held in counted.annotate(held=models.Count("pk"))
        }

    def held_by_queue(self, queues: Collection[str]) -> dict[str, int]:
        """The number of executions of each of these queues that workers hold, where there are
        any."""
        rows = self.open().filter(queue__in=queues, status__in=DISPATCHED, worker__isnull=False)
        return dict(rows.order_by().values_list("queue").annotate(held=models.Count("pk")))

    def slow_by_worker(self, now: datetime) -> dict[int, tuple[int, int]]:
        """The number of executions that each worker holds, and of those that have run for so long
        that their end cannot be guessed, by worker id."""
        long_ago = now - timedelta(seconds=SOON_OVER_SECONDS)
        slow = models.Count("pk", filter=Q(status__in=STARTED, started_at__lte=long_ago))
        rows = self._by_worker(DISPATCHED).annotate(held=models.Count("pk"), slow=slow)
        return {worker_id: (held, slow) for worker_id, held, slow in rows}

    def running_by_worker(self) -> dict[int, int]:
        """The number of executions that each worker has claimed and not ended, by worker id."""
        return self._count_by_worker(STARTED)

    def _count_by_worker(self, statuses: Collection[ExecutionStatus]) -> dict[int, int]:
        return dict(self._by_worker(statuses).annotate(held=models.Count("pk")))

    def _by_worker(self, statuses: Collection[ExecutionStatus]) -> models.QuerySet[Any, Any]:
        of_workers = self.open().filter(status__in=statuses, worker__isnull=False)
        return of_workers.order_by().values_list("worker_id")

    def with_worker_names(self) -> Self:
        """Each with its worker, of which nothing but the name is loaded: to be shown."""
        others = [f"worker__{name}" for name in _columns_of(Worker) - {"id", "name"}]
        return self.select_related("worker").defer(*sorted(others))

    def without_contents(self) -> Self:
        """Leave out the columns that no decision needs: parameters and result, which can be large,
        and those that are only displayed."""
        return self.defer(*CONTENTS)

    def locked_for_batch(self, limit: int) -> Self:
        """Lock the first `limit` rows until the transaction ends. On PostgreSQL rows that another
        session holds are skipped.

        Call it inside a transaction. SQLite has one writer at a time, so there is nothing to skip.
        """
        return self._held()[:limit]

    def update_unheld(self, **values: Any) -> set[UUID]:
        """Update the rows that no other session holds; returns their ids. The others stay as they
        are, and are not waited for."""
        with transaction.atomic():
            database.hold_briefly()
            ids = set(self.order_by("pk")._held().values_list("pk", flat=True))
            self.model._default_manager.filter(pk__in=ids).update(**values)
        return ids

    def _held(self) -> Self:
        return self.select_for_update(skip_locked=True, of=("self",), no_key=True)


def _columns_of(model: type[models.Model]) -> set[str]:
    return {field.name for field in model._meta.concrete_fields}
