"""Tries at advancing a task, noted on its row before they begin: so a death leaves a trace.

1. An executor that takes a task in hand writes 1 to `advance_tries`, by one statement that commits
   by itself, and only where nothing is written.
2. Every transition of the task clears it, within the transaction of the advance, and so does an
   advance that moves nothing. An advance that is rolled back, or dies, leaves it.
3. Who finds a number there locks the row, and so waits for whoever advances the task now. If the
   number is still there, its try was interrupted, or another executor has written it this moment
   and has no lock yet: to know, the task is left alone until the number is a second old.
4. Then the number grows with the next try, up to MOST_TRIES. After those the task is given up.

A try that an outage of the database ended counts for nothing: this process goes on with it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import structlog
from django.db import connection, transaction

from orchestrator.core.models import DLQEntry
from orchestrator.core.state_machine import transition
from orchestrator.core.statements import off_disk
from orchestrator.workflows.engine import outcomes
from orchestrator.workflows.engine.investigating import investigate
from orchestrator.workflows.models import Task
from orchestrator.workflows.models.tasks import MOST_TRIES, QUARANTINED
from orchestrator.workflows.states import TASKS

log = structlog.get_logger(__name__)

CERTAIN_AFTER_SECONDS = 0.9
"""From writing the number to the lock takes milliseconds; tasks are looked for every second."""
SIGHTING_LASTS_SECONDS = 60.0
MOST_REMEMBERED = 10_000


_ID = Task._meta.get_field("id")


class _Sighting(NamedTuple):
    """A number that was found on a task's row, and when."""

    tries: int
    at: float


_sightings: dict[UUID, _Sighting] = {}
_suspended: dict[UUID, None] = {}
"""Tasks with whose try this process goes on, the oldest first."""


def begin(task_id: UUID, *, now: datetime, actor: str) -> bool:
    """Note on the row that an executor begins to advance the task; returns False if it is to be
    left alone now: it is over, quarantined, or perhaps in other hands.

    A task that has had all its tries is given up. Call it outside of transactions.
    """
    if _take_in_hand(task_id):
        _forget(task_id)
        return True
    with transaction.atomic():
        task = _locked(task_id)
        if task is None or not _is_free(task):
            return False
        if task.advance_tries == MOST_TRIES and task_id not in _suspended:
            _quarantine(task, now=now, actor=actor)
            return False
        _count(task)
    _forget(task_id)
    return True


def suspend(task_id: UUID) -> None:
    """Remember that this process goes on with the try that it had begun: an outage of the database
    ended it, or other tasks in the same transaction did."""
    _suspended.pop(task_id, None)
    if len(_suspended) >= MOST_REMEMBERED:
        # most likely another executor has gone on with the oldest; otherwise its try counts
        del _suspended[next(iter(_suspended))]
    _suspended[task_id] = None


def failed(task_id: UUID, error: Exception, *, now: datetime, actor: str) -> None:
    """Take note that the try raised an exception: the last one gives the task up."""
    with transaction.atomic():
        task = _locked(task_id)
        if task is None or task.is_terminal or task.is_quarantined or not task.advance_tries:
            return
        if task.advance_tries < MOST_TRIES:
            # this process knows how the try ended, and need not wait
            at = time.monotonic() - CERTAIN_AFTER_SECONDS
            _sightings[task_id] = _Sighting(task.advance_tries, at)
            return
        why = f"{outcomes.TEMPLATE_FAILED}: {outcomes.described(error)}"
        reason = DLQEntry.Reason.MAX_RETRIES_EXCEEDED
        _give_up(task, reason, outcomes.TEMPLATE_FAILED, why, now=now, actor=actor)


_OVER = ", ".join(f"'{state}'" for state in sorted(TASKS.terminal))
_FREE = f"advance_tries IS NULL AND state NOT IN ({_OVER})"


def begin_free(task_ids: Sequence[UUID]) -> set[UUID]:
    """Begin the first try at each of the tasks that are free and that no other session holds;
    returns them. Call it outside of transactions."""
    can_skip = connection.features.has_select_for_update_skip_locked
    sql = f"""
        UPDATE workflows_task SET advance_tries = 1 WHERE id IN (
            SELECT id FROM workflows_task
            WHERE id IN ({", ".join(["%s"] * len(task_ids))}) AND {_FREE}
            ORDER BY id {"FOR NO KEY UPDATE SKIP LOCKED" if can_skip else ""}
        ) AND {off_disk()} RETURNING id
    """  # noqa: S608 - made of constants
    with connection.cursor() as cursor:
        cursor.execute(sql, [_ID.get_db_prep_value(id, connection) for id in task_ids])
        taken = {_ID.to_python(row[0]) for row in cursor.fetchall()}
    for task_id in taken:
        _forget(task_id)
    return taken


def _take_in_hand(task_id: UUID) -> bool:
    """Write 1, unless something is written there or the task is over.

    This is on the way of every advance, hence written by hand: to compose it costs more than to
    carry it out. A server that loses its power may lose the trace of one try, and nothing else.
    """
    sql = f"UPDATE workflows_task SET advance_tries = 1 WHERE id = %s AND {_FREE} AND {off_disk()}"  # noqa: S608 - made of constants
    with connection.cursor() as cursor:
        cursor.execute(sql, [_ID.get_db_prep_value(task_id, connection)])
        return bool(cursor.rowcount)


def _locked(task_id: UUID) -> Task | None:
    """The task, locked; waits for whoever advances it now."""
    rows = Task.objects.select_related("template").defer("context", "template__definition")
    if connection.features.has_select_for_update:
        rows = rows.select_for_update(of=("self",))
    return rows.filter(pk=task_id).first()


def _is_free(task: Task) -> bool:
    """Return True if it may be advanced, and nobody else is about to do that."""
    if task.is_terminal or task.is_quarantined:
        return False
    return task.advance_tries is None or task.pk in _suspended or _is_interrupted(task)


def _is_interrupted(task: Task) -> bool:
    """Return True if the number on the row was there a second ago, too: who wrote it is gone."""
    tries, now = task.advance_tries or 0, time.monotonic()
    seen = _sightings.get(task.pk)
    if seen and seen.tries == tries and now - seen.at < SIGHTING_LASTS_SECONDS:
        return now - seen.at >= CERTAIN_AFTER_SECONDS
    if len(_sightings) >= MOST_REMEMBERED:
        _sightings.clear()
    _sightings[task.pk] = _Sighting(tries, now)
    return False


def _count(task: Task) -> None:
    if task.pk in _suspended and task.advance_tries is not None:
        return
    tries = (task.advance_tries or 0) + 1
    if tries > 1:
        log.warning("an advance was interrupted, trying again", task_id=str(task.pk))
    Task.objects.filter(pk=task.pk).update(advance_tries=tries)


def _forget(task_id: UUID) -> None:
    _sightings.pop(task_id, None)
    _suspended.pop(task_id, None)


def _quarantine(task: Task, *, now: datetime, actor: str) -> None:
    poison = DLQEntry.Reason.POISON
    detail = f"{MOST_TRIES} executors died, or were stopped, while they advanced it"
    _give_up(task, poison, poison.value, detail, now=now, actor=actor)


def _give_up(
    task: Task, reason: DLQEntry.Reason, why: str, detail: str, *, now: datetime, actor: str
) -> None:
    """Quarantine the task: it is in error, a person is told, and no executor advances it."""
    log.error("task given up", task_id=str(task.pk), reason=why, detail=detail)
    investigate(task, reason, detail, now=now, actor=actor)
    if TASKS.allows("give_up", task.state):
        transition(task, "give_up", now=now, actor=actor, reason=why, advance_tries=QUARANTINED)
    else:  # it is in error already
        Task.objects.filter(pk=task.pk).update(advance_tries=QUARANTINED)
    _forget(task.pk)
