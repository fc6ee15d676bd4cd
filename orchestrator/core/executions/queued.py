"""From the backlogs of queues to workers: each queue in its turn, none beyond its limit.

The limit of a queue is exact with any number of executors. Who starts its work holds the queue
until the end of the transaction, then counts what workers hold, then writes: the next one counts
after that. Nothing has to be given back when work ends, and so nothing can be forgotten. Queues
without a limit are not held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import cache
from typing import Any

from django.db import connection, transaction

from orchestrator.core import database, fleet, queue_terms
from orchestrator.core.executions import assigning
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import BACKLOG, BY_LIMIT, LONGEST_PAUSE
from orchestrator.core.queue_terms import QueueTerms, queue_of
from orchestrator.core.statements import Statement


def place(
    executions: Sequence[Execution], *, placement: fleet.Placement, now: datetime, actor: str
) -> bool:
    """Give these executions of queues to workers; returns True if some had to stay in the backlog.

    Those of a queue that is paused, or that nobody serves, stay without a word: there may be many.
    """
    terms = _startable({e.queue for e in executions if e.queue}, placement)
    ready = [execution for execution in executions if execution.queue in terms]
    if not ready:
        return False
    limited = _limited(terms, placement)
    with transaction.atomic() if limited else nullcontext():
        left = _hold(limited, terms, placement)
        admitted = _admitted(ready, left)
        postponed = assigning.place(admitted, placement=placement, now=now, actor=actor)
    return postponed or len(admitted) < len(ready)


def waiting(placement: fleet.Placement, now: datetime) -> tuple[dict[str, QueueTerms], set[str]]:
    """The queues that have work to start now: those whose workers have room, and the names of the
    full ones."""
    served = placement.served_queues()
    if not served:
        return {}, set()
    terms = _startable(served, placement)
    names = _with_work([name for name in served if name in terms], now)
    with_room = {name: terms[name] for name in names if placement.queue_room(name)}
    return with_room, set(names) - with_room.keys()


def schedule(
    queues: Mapping[str, QueueTerms],
    *,
    share: int,
    most: int,
    placement: fleet.Placement,
    now: datetime,
    actor: str,
) -> tuple[set[str], set[str]]:
    """Start the most urgent work of these queues: of each at most `share`, together at most `most`.

    Returns the queues that may have more to start now, and those that may start no more.
    """
    if not queues:
        return set(), set()
    limited = _limited(queues, placement)
    with transaction.atomic():
        database.hold_briefly()
        left = _hold(limited, queues, placement)
        wanted: dict[str, int] = {}
        for name in queues:
            number = min(share, placement.queue_room(name), left.get(name, share), most)
            if number > 0:
                wanted[name], most = number, most - number
        rows = _locked(wanted, now)
        assigning.place(rows, placement=placement, now=now, actor=actor, postpone=True)
    found = Counter(row.queue for row in rows)
    more = {name for name, number in wanted.items() if found[name] == number}
    return more, queues.keys() - wanted.keys()


def _startable(names: Collection[str], placement: fleet.Placement) -> dict[str, QueueTerms]:
    """Those of these queues that are not paused, and that somebody serves."""
    served = [name for name in names if placement.serves(name)]
    if not served:
        return {}
    terms = queue_terms.queues().terms(served)
    return {name: known for name, known in terms.items() if not known.is_paused}


def _limited(terms: Mapping[str, QueueTerms], placement: fleet.Placement) -> list[str]:
    """The queues whose limits would not be exact without holding them."""
    return sorted(
        name
        for name, known in terms.items()
        if known.max_running is not None or placement.limits_slots(name)
    )


def _hold(
    limited: Collection[str], terms: Mapping[str, QueueTerms], placement: fleet.Placement
) -> dict[str, int]:
    """Hold these queues until the transaction ends, and correct the view of the fleet; returns how
    many more executions each queue with a limit may start."""
    if not limited:
        return {}
    database.hold_briefly()
    queue_terms.queues().hold(limited)
    held = Execution.objects.load_by_subscription(limited)
    placement.correct(limited, held)
    running: Counter[str] = Counter()
    for (_, name), number in held.items():
        running[queue_of(name)] += number
    limits = {name: terms[name].max_running for name in limited}
    return {
        name: max(0, limit - running[name]) for name, limit in limits.items() if limit is not None
    }


def _admitted(executions: Sequence[Execution], left: Mapping[str, int]) -> list[Execution]:
    """As many of these as their queues may still start."""
    taken: Counter[str] = Counter()
    admitted = []
    for execution in executions:
        name = execution.queue
        assert name is not None
        taken[name] += 1
        if name not in left or taken[name] <= left[name]:
            admitted.append(execution)
    return admitted


# --- reading several backlogs at once ------------------------------------------------------------


def _with_work(names: Sequence[str], now: datetime) -> list[str]:
    """Those of these queues that have work that may start now, in this order."""
    if not names:
        return []
    if connection.vendor != "postgresql":
        backlog = Execution.objects.backlog(now)
        return [name for name in names if backlog.in_queue(name).exists()]
    rows = _statements()["with_work"].execute({"names": list(names), **_times(now)})
    return [name for (name,) in rows]


def _locked(wanted: Mapping[str, int], now: datetime) -> list[Execution]:
    """The most urgent executions of each queue, at most as many as wanted, locked for this
    transaction: the first of each queue, then the second of each, and so on."""
    if not wanted:
        return []
    rows = Execution.objects.backlog(now).without_contents()
    if connection.vendor != "postgresql":
        first = [
            list(rows.in_queue(name)[:number].with_actions()) for name, number in wanted.items()
        ]
        return _in_turns(first)
    values = {"names": list(wanted), "numbers": list(wanted.values()), **_times(now)}
    ids = [id for (id,) in _statements()["locked"].execute(values)]
    found: dict[str, list[Execution]] = {name: [] for name in wanted}
    for row in rows.filter(pk__in=ids).with_actions():
        assert row.queue is not None
        found[row.queue].append(row)
    return _in_turns(list(found.values()))


def _in_turns(backlogs: Sequence[Sequence[Execution]]) -> list[Execution]:
    longest = max(map(len, backlogs), default=0)
    return [
        backlog[place] for place in range(longest) for backlog in backlogs if place < len(backlog)
    ]


def _times(now: datetime) -> dict[str, Any]:
    latest, backlog = now + LONGEST_PAUSE, list(BACKLOG)
    return {"now": now, "latest": latest, "backlog": backlog, "by_limit": BY_LIMIT}


@cache
def _statements() -> Mapping[str, Statement]:
    """Two statements for any number of queues, as a query for each took most of the time of a look.

    Both read the rows of `ExecutionQuerySet.backlog`; a test compares them.
    """
    backlog = f"""
        FROM {Execution._meta.db_table} AS execution
        WHERE execution.queue = wanted.name AND execution.ended_at IS NULL
          AND execution.status = ANY(%(backlog)s) AND execution.deadline_at > %(now)s
          AND (execution.next_retry_at IS NULL OR execution.next_retry_at <= %(now)s
               OR execution.next_retry_at > %(latest)s AND execution.wait_reason <> ''
                  AND NOT starts_with(execution.wait_reason, %(by_limit)s))
    """
    with_work = f"""
        SELECT wanted.name
        FROM unnest(%(names)s::text[]) WITH ORDINALITY AS wanted (name, number)
        WHERE EXISTS (SELECT {backlog})
        ORDER BY wanted.number
    """  # noqa: S608 - every interpolated name is our own
    locked = f"""
        SELECT first.id
        FROM unnest(%(names)s::text[], %(numbers)s::int[]) AS wanted (name, number)
        CROSS JOIN LATERAL (
            SELECT execution.id {backlog}
            ORDER BY execution.queue, execution.priority DESC, execution.id
            LIMIT wanted.number
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS first
    """  # noqa: S608 - every interpolated name is our own
    return {"with_work": Statement(with_work), "locked": Statement(locked)}
