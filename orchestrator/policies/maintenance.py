"""The maintenance of policies, which makes good every message and every place that was lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef

from orchestrator.core import clock, database
from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import BACKLOG, BY_LIMIT
from orchestrator.policies import adopting, figures, waking
from orchestrator.policies.models import Policy, PolicyBucket, PolicySlot, PolicyWait

AT_ONCE = 5_000


def wake_policies(*, now: datetime) -> Any:
    """Forget what is over, count what runs uncounted, and make due what waits without need. Safe to
    run twice, and at once with others."""
    moment = clock.Running(now)
    parts: dict[str, Callable[[], int]] = {
        "forgotten": forget,
        "counted": lambda: adopting.adopt(Policy.objects.in_force(), now=moment()),
        "released": lambda: release(now=moment()),
        "woken": lambda: wake(now=moment()),
    }
    return database.carry_out_each(parts)


def forget() -> int:
    """Remove the slots and the waits of executions that have ended, or are gone.

    Of no others: what is in the backlog may be started before its slot is removed, and then runs
    uncounted. A slot in the backlog counts nothing, and no execution leaves its end again.
    """
    open_one = Execution.objects.open().filter(pk=OuterRef("execution_id"))
    slots = PolicySlot.objects.filter(~Exists(open_one)).values_list("pk", flat=True)
    waits = PolicyWait.objects.filter(~Exists(open_one)).values_list("pk", flat=True)
    removed, _ = PolicySlot.objects.filter(pk__in=list(slots[:AT_ONCE])).delete()
    more, _ = PolicyWait.objects.filter(pk__in=list(waits[:AT_ONCE])).delete()
    return removed + more


def release(*, now: datetime) -> int:
    """Make due what waits for a policy that is not in force any more, or for no policy."""
    idle = PolicyWait.objects.waiting().exclude(bucket__policy__in=Policy.objects.in_force())
    idle = idle.filter(execution__next_retry_at__gt=now)
    ids = list(idle.values_list("execution_id", flat=True)[:AT_ONCE])
    stray = Execution.objects.open().filter(wait_reason__startswith=BY_LIMIT, status__in=BACKLOG)
    waits = PolicyWait.objects.filter(execution=OuterRef("pk"))
    stray = stray.filter(~Exists(waits), next_retry_at__gt=now)
    ids += stray.values_list("pk", flat=True)[:AT_ONCE]
    return waking.make_due(ids, now=now)


def wake(*, now: datetime) -> int:
    """Make due the first ones of each bucket that has places for them."""
    return waking.first_of(PolicyBucket.objects.all(), now=now, ahead=waking.LOOKS_AHEAD)


def bring_forward(*, now: datetime) -> int:
    """Begin the periods and windows again that come from a clock that was set back; returns how
    many. Then `wake` finds who has a place."""
    rates = Policy.objects.filter(kind=Policy.Kind.RATE)
    with transaction.atomic():
        number = PolicyBucket.objects.filter(period_started_at__gt=now).change_held(
            period_started_at=None, used=0
        )
        return number + sum(figures.shorten_debt(policy, now=now) for policy in rates)
