"""The things that the parts of one page share: who looks, when, and rows that are read once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.db.models import Count, Q
from django.http import HttpRequest

from orchestrator.console.kept import LIVES, for_all
from orchestrator.core import authority, clock, frame, presence
from orchestrator.core.authority import Place, Principal
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.execution_sets import DISPATCHED, STARTED
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.presence import Life

T = TypeVar("T")

TOKEN_MAX = 36
UNLISTED = ("runtimes", "isolation", "missing_code", "queues", "queue_pauses", "version")
"""Columns of workers that no list shows."""
CELLS_MAX = 10_000
"""Executions at workers that are read for a page."""


class Held(NamedTuple):
    """An execution that a worker holds."""

    worker_id: int
    id: UUID
    action_ref: str
    status: str
    started_at: datetime | None

    @property
    def is_started(self) -> bool:
        return self.status in STARTED


class Load(NamedTuple):
    """The load of a worker: the number of executions that it holds."""

    running: int
    waiting: int


NO_LOAD = Load(0, 0)


def loads(rows: Iterable[tuple[int, int, int]]) -> dict[int, Load]:
    """The loads of workers by id, from how much each holds, and how much of it runs."""
    return {id: Load(running, every - running) for id, every, running in rows}


def for_everywhere(look: Look, permissions: Collection[str], name: str, read: Callable[[], T]) -> T:
    """The same, for what depends on the reach of these permissions alone: kept for those who have
    all of them everywhere, read each time for others."""
    if all(authority.reach(look.user, each).is_everywhere for each in permissions):
        return for_all(name, read)
    return read()


@cache
def _permissions() -> tuple[str, ...]:
    return tuple(sorted(each.name for each in frame.collect(lambda app: app.permissions)))


@dataclass
class Look:
    """One look of one person at one page."""

    user: Principal
    now: datetime = field(default_factory=clock.now)
    token: str = ""
    """Of the form that was sent, if it has one: sent twice, it does its work once."""
    worker_id: int | None = None
    """The only worker of which `held` knows, if the page is about one."""

    @classmethod
    def of(cls, request: HttpRequest) -> Look:
        token = request.POST.get("token", "")[:TOKEN_MAX].replace("\0", "")
        return cls(authority.of_request(request), token=token)

    def may(self, permission: str, place: Place | None = None) -> bool:
        return authority.may(self.user, permission, place)

    @property
    def sight(self) -> str | None:
        """A name for all that the user may do, the same for everybody who may do the same; None if
        they may do something in places only."""
        reaches = {name: authority.reach(self.user, name) for name in _permissions()}
        given = [name for name, reach in reaches.items() if reach]
        return "+".join(given) if all(reaches[name].is_everywhere for name in given) else None

    @cached_property
    def workers(self) -> list[Worker]:
        """Those that are not retired, by name."""
        if not self.may("workers.read"):
            return []
        return list(Worker.objects.visible_to(self.user).known().defer(*UNLISTED))

    def worker_names(self, ids: Collection[int]) -> dict[int, str]:
        """The names of these workers by id, without those that are retired or not for the user."""
        if not ids or not self.may("workers.read"):
            return {}
        rows = Worker.objects.visible_to(self.user).known().filter(pk__in=ids).order_by()
        return dict(rows.values_list("pk", "name"))

    @cached_property
    def lives(self) -> list[Life]:
        """Services besides workers."""
        if not self.may("metrics.read"):
            return []
        return for_all(LIVES, lambda: presence.lives(self.now))

    @cached_property
    def held(self) -> dict[int, list[Held]]:
        """The executions that workers hold now, by worker id, the running ones first; of refs
        that the user may not see, too, as a slot is taken whoever looks."""
        columns = ("worker_id", "pk", "action_ref", "status", "started_at")
        held: dict[int, list[Held]] = {}
        for row in self.dispatched().values_list(*columns)[:CELLS_MAX]:
            held.setdefault(row[0], []).append(Held(*row))
        for each in held.values():
            each.sort(key=lambda one: (not one.is_started, one.id))
        return held

    @cached_property
    def loads(self) -> dict[int, Load]:
        """The loads of workers now, by worker id; nothing for one that holds nothing."""
        rows = self.dispatched().values_list("worker_id")
        is_running = Count("pk", filter=Q(status__in=STARTED))
        return loads(rows.annotate(n=Count("pk"), running=is_running))

    def dispatched(self) -> ExecutionQuerySet:
        """The executions that workers hold now."""
        rows = Execution.objects.open().filter(status__in=DISPATCHED, worker__isnull=False)
        if self.worker_id is not None:
            rows = rows.filter(worker=self.worker_id)
        return rows.order_by()
