"""The removal of packs.

    removal.begin("shop", now=now)          # refuses new requests; rules and the like are disabled
    removal.open_work("shop")               # what still needs it
    removal.cancel("shop", by=..., now=now) # or wait
    removal.finish("shop", now=now)         # refused while something is open

Other processes know for a second more the actions that they have read. What they accept in that
time is open work if it comes before `finish` looks. If it comes later, it still runs: it has its
release, whose content stays while something open needs it. Only `open_work` would name it.

Its rows stay, so that executions, tasks and events of the past can be read by their refs. A pack of
the same name can be installed again, and then has them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from orchestrator.core import authority, frame, packs
from orchestrator.core.authority import PermissionMissing, Place, Principal
from orchestrator.core.errors import Conflict
from orchestrator.core.executions import cancellation
from orchestrator.core.executions.cancellation import AlreadyOver
from orchestrator.core.executions.requests import UnknownExecution
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Execution, Pack
from orchestrator.core.models.catalog import forget_actions
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.packs import breaking, releases
from orchestrator.core.packs.breaking import WouldBreak
from orchestrator.core.state_machine import TransitionConflict

LISTED = 20
"""Open rows that a refusal names."""
CANCELLED_AT_ONCE = 200
"""The most that one call cancels, of each kind: a request has to end."""


@dataclass(frozen=True)
class OpenWork:
    """The work that still needs a pack."""

    total: int
    listed: tuple[str, ...]
    """`execution ID` or `task ID`, the oldest first, of those that the caller may see."""


@dataclass(frozen=True)
class Removed:
    """The pack that was removed, and its content."""

    pack: str
    version: str
    actions: tuple[str, ...]
    disabled: tuple[str, ...]
    """The refs of its other content, and of what of other packs was disabled."""


class StillInUse(Conflict):
    """Open executions or tasks still need the pack."""

    kind = "pack-in-use"

    def __init__(self, pack: str, work: OpenWork) -> None:
        self.work = work
        more = work.total - len(work.listed)
        listed = " and ".join(filter(None, [", ".join(work.listed), f"{more} more" * bool(more)]))
        super().__init__(
            f"The pack {pack} is needed by {work.total} open: {listed}. Wait for them (drain), or "
            "cancel them (cancel)"
        )


def open_work(name: str, *, seen_by: Principal | None = None) -> OpenWork:
    """The open executions and tasks that need a pack."""
    rows = _open(name).order_by("pk")
    seen = rows if seen_by is None else rows.visible_to(seen_by)
    listed = [f"execution {id}" for id in seen.values_list("pk", flat=True)[:LISTED]]
    total = rows.count()
    for each in frame.collect(lambda app: app.pack_work):
        total += len(each.open(name, None, ""))
        listed += [f"{each.kind} {id}" for id in each.open(name, seen_by, each.reads)[:LISTED]]
    return OpenWork(total, tuple(listed[:LISTED]))


def _open(name: str) -> ExecutionQuerySet:
    return Execution.objects.open().filter(action__pack__name=name)


def begin(
    name: str,
    *,
    now: datetime,
    principal: Principal | None = None,
    accepts_breaking: bool = False,
    cancels: bool = False,
) -> Pack:
    """Have nothing new begin with this pack: requests are refused, except those of Muster itself,
    for steps of tasks that run. Safe to repeat. Raises WouldBreak unless `accepts_breaking`,
    UnknownPack and PermissionMissing: with `cancels`, also if the principal may not cancel all that
    is open."""
    _require(name, principal)
    if cancels and principal is not None:
        _require_to_cancel(name, principal)
    with transaction.atomic():
        pack = _locked(name)
        _disable_dependents(name, principal, accepts_breaking, now)
        if pack.draining_since is None:
            pack.draining_since = now
            pack.save(update_fields=["draining_since"])
            for each in frame.collect(lambda app: app.pack_work):
                if each.pause is not None:
                    each.pause(name, now=now)
    forget_actions()
    return pack


def cancel(name: str, *, by: str, now: datetime, principal: Principal | None = None) -> int:
    """Cancel what still needs a pack and `principal` may cancel, at most some hundreds; returns how
    many. Call it again until nothing is open; ends take a moment."""
    cancelled, reason = 0, f"the pack {name} is being removed"
    for each in frame.collect(lambda app: app.pack_work):
        ids: Sequence[str] = each.open(name, principal, each.cancels)[:CANCELLED_AT_ONCE]
        each.cancel(ids, by=by, now=now)
        cancelled += len(ids)
    rows = _open(name).filter(cancel_requested_at__isnull=True).order_by("pk")
    for id in rows.values_list("pk", flat=True)[:CANCELLED_AT_ONCE]:
        with contextlib.suppress(AlreadyOver, TransitionConflict, UnknownExecution):
            cancellation.cancel(
                execution_id=id, actor=by, now=now, reason=reason, principal=principal
            )
            cancelled += 1
    return cancelled


def _require_to_cancel(name: str, principal: Principal) -> None:
    rows = _open(name)
    if rows.exists():  # all of them are of this pack
        authority.require(principal, "executions.cancel", Place(PACKS, name))
    for each in frame.collect(lambda app: app.pack_work):
        if len(each.open(name, principal, each.cancels)) < len(each.open(name, None, "")):
            raise PermissionMissing(each.cancels, f"Cancelling each open {each.kind}")


def finish(
    name: str,
    *,
    now: datetime,
    principal: Principal | None = None,
    accepts_breaking: bool = False,
) -> Removed:
    """Remove a pack, all of it or nothing. Raises StillInUse, WouldBreak unless
    `accepts_breaking`, UnknownPack and PermissionMissing."""
    _require(name, principal)
    with transaction.atomic():
        pack = _locked(name)
        if (work := open_work(name, seen_by=principal)).total:
            raise StillInUse(name, work)
        disabled = _disable_dependents(name, principal, accepts_breaking, now)
        removed = _remove(pack, disabled, now)
    forget_actions()
    return removed


def _disable_dependents(
    name: str, principal: Principal | None, accepts_breaking: bool, now: datetime
) -> tuple[str, ...]:
    broken = breaking.of_removal(name)
    if broken and not accepts_breaking:
        raise WouldBreak(broken, seen_by=principal)
    return breaking.disable(broken, principal=principal, now=now)


def _remove(pack: Pack, others: Sequence[str], now: datetime) -> Removed:
    disabled = list(others)
    for kind in packs.kinds():
        disabled += kind.install((), pack=pack, now=now, principal=None).disabled
    actions = pack.actions.filter(retired_at__isnull=True)
    refs = tuple(actions.values_list("ref", flat=True))
    actions.update(enabled=False, retired_at=now, updated_at=now)
    releases.retire(pack, now=now)
    pack.release, pack.removed_at, pack.draining_since = None, now, None
    pack.save(update_fields=["release", "removed_at", "draining_since"])
    return Removed(pack.name, pack.version, refs, tuple(disabled))


def _require(name: str, principal: Principal | None) -> None:
    if principal is not None:
        authority.require(principal, "packs.install", Place(PACKS, name))


def _locked(name: str) -> Pack:
    releases.find(name)
    return Pack.objects.select_for_update().get(name=name)
