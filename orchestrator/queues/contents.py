"""Queues of packs, installed with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.models import Pack
from orchestrator.core.packs import ContentProblem, ContentRefused, ContentReport
from orchestrator.queues import changes, definitions
from orchestrator.queues.changes import CREATED, UNCHANGED, UPDATED, InvalidQueue
from orchestrator.queues.models import WorkQueue


def install(
    values: Sequence[Mapping[str, Any]],
    *,
    pack: Pack,
    now: datetime,
    principal: Principal | None = None,
) -> ContentReport:
    """Bring the queues of a pack in line with its files. One that is no longer among them accepts
    nothing more; what is in it goes on. Raises ContentRefused, QueueOfPack and
    PermissionMissing."""
    if values and principal is not None:
        authority.require(principal, "queues.change")
    names: dict[str, list[str]] = {CREATED: [], UPDATED: [], UNCHANGED: []}
    problems: list[ContentProblem] = []
    actor = f"pack {pack.name}"
    for each in values:
        new = definitions.new_queue(each)
        try:
            outcome = changes.apply(
                new, actor=actor, now=now, pack=pack, principal=principal
            ).outcome
        except InvalidQueue as invalid:
            problems += [ContentProblem((new.name,), *problem) for problem in invalid.problems]
        else:
            names[outcome].append(new.name)
    if problems:
        raise ContentRefused(problems)
    gone = WorkQueue.objects.in_use().filter(pack=pack, accepts=True)
    gone = gone.exclude(name__in=[each["name"] for each in values])
    closed = [changes.close(queue.name, actor=actor, now=now).name for queue in gone]
    return ContentReport(
        tuple(names[CREATED]), tuple(names[UPDATED]), tuple(names[UNCHANGED]), tuple(closed)
    )
