"""Executions that a worker could not load, as its host lacks the code: they never began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import Q

from orchestrator.core import fleet
from orchestrator.core.executions.ended import Ended
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.catalog import WITHOUT_CODE
from orchestrator.core.models.executions import of_release
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey

MISSING = "missing"
"""The key of such a result that names what is missing: a pack, or a single action."""


SAID_BY_WORKERS = (Reason.PACK_UNAVAILABLE, Reason.TASK_REJECTED, Reason.QUEUE_PAUSED)
"""Reasons after which the row of the execution's worker says what it takes no more of."""


def note_missing_code(ended: Sequence[Ended], *, now: datetime) -> None:
    """Record in the rows of the workers of these attempts which code they could not load.

    Called before these executions are given back, so that the next placement knows it.
    """
    missing: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
    for end in ended:
        if end.reason is Reason.PACK_UNAVAILABLE:
            execution = end.execution
            life = execution.worker_id or 0, execution.worker_incarnation or 0
            pack, action = execution.action_ref.partition(".")[0], execution.action_ref
            name = pack if end.result.get(MISSING) == pack else action
            if execution.release_id is not None:
                (name,) = of_release([name], execution.release_id)
            missing[life][name] = str(end.result.get("message", ""))
    for (worker_id, incarnation), messages in missing.items():
        fleet.lack_code(worker_id=worker_id, incarnation=incarnation, missing=messages, now=now)


def among(executions: Sequence[Execution]) -> set[AttemptKey]:
    """Those of these that are in the backlog again because a worker could not load them, or takes
    nothing of their queue for a while.

    Each dispatch raises `attempt` and each failure `retry_count`, so they differ after a give-back.
    """
    returned = {each.pk: each.key for each in executions if each.attempt > each.retry_count}
    if not returned:
        return set()
    unloaded = Execution.objects.filter(pk__in=returned, reason__in=SAID_BY_WORKERS)
    return {returned[pk] for pk in unloaded.values_list("pk", flat=True)}


def on_workers_without_code() -> Q:
    """A condition on executions: their worker lacks their code. Matches nothing while none lacks
    any."""
    lacking = Q(pk__in=())
    for worker_id, missing in Worker.objects.lacking_code().values_list("pk", "missing_code"):
        by_path = Q(action__pack__name__in=missing) | Q(action_ref__in=missing)
        code = by_path & Q(release__isnull=True) | _of_releases(missing)
        lacking |= Q(worker_id=worker_id) & code & ~Q(action__runtime__in=WITHOUT_CODE)
    return lacking


def _of_releases(missing: Collection[str]) -> Q:
    """A condition on executions: their release, or its action, is among what is missing."""
    condition = Q(pk__in=())
    for name, _, release in (name.partition("@") for name in missing if "@" in name):
        whole = Q(release=int(release))
        condition |= whole & Q(action_ref=name) if "." in name else whole
    return condition
