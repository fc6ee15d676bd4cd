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

from django.db import transaction

from orchestrator.core import database, fleet, queue_terms
from orchestrator.core.executions import assigning
from orchestrator.core.models import Execution, backlog
from orchestrator.core.queue_terms import QueueTerms, queue_of


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
        unplaced = assigning.place(admitted, placement=placement, now=now, actor=actor)
    return bool(unplaced.full) or len(admitted) < len(ready)


def waiting(placement: fleet.Placement, now: datetime) -> tuple[dict[str, QueueTerms], set[str]]:
    """The queues that have work to start now: those whose workers have room, and the names of the
    full ones."""
    served = placement.served_queues()
    if not served:
        return {}, set()
    terms = _startable(served, placement)
    names = backlog.queues_with_work([name for name in served if name in terms], now=now)
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

    What is behind executions whose own workers are full or gone has its turn, too. Each turn has
    its own transaction: what a policy limits is held in one order, and only once in each. Returns
    the queues that may have more to start now, and those that have work which cannot start yet.
    """
    if not queues:
        return set(), set()
    limited = _limited(queues, placement)
    look = assigning.Look()
    shares = dict.fromkeys(queues, share)
    more: set[str] | None = None
    waits: set[str] = set()
    while True:
        with transaction.atomic():
            database.hold_briefly()
            left = _hold(limited, queues, placement)
            free = {name: min(number, left.get(name, number)) for name, number in shares.items()}
            wanted = _wanted(free, most, placement)
            rows = backlog.first_of_queues(wanted, now=now, busy=look.busy)
            unplaced = assigning.place(
                rows, placement=placement, now=now, actor=actor, postpone=True
            )
        if more is None:
            more = set(wanted)
            waits |= queues.keys() - more
        found, stayed = (Counter(row.queue for row in each) for each in (rows, unplaced.all))
        waits |= {row.queue for row in unplaced.full if row.queue is not None}
        more -= {name for name, number in wanted.items() if found[name] < number}
        if not look.goes_on(unplaced):
            return more, waits
        most -= len(rows) - len(unplaced.all)
        shares = {
            name: shares[name] - found[name] + stayed[name] for name in queues if name in more
        }


def _wanted(shares: Mapping[str, int], most: int, placement: fleet.Placement) -> dict[str, int]:
    """The number to read of each queue: its share, as far as its workers have room, and `most`
    together."""
    wanted: dict[str, int] = {}
    for name, share in shares.items():
        number = min(share, placement.queue_room(name), most)
        if number > 0:
            wanted[name], most = number, most - number
    return wanted


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
