"""Now: whether anything is wrong, and what is going on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import CharField, Count, IntegerField, Min, Q, QuerySet, Value
from django.http import HttpRequest

from orchestrator.console import access, charts, heat
from orchestrator.console.access import Context
from orchestrator.console.kept import OPEN_NOW, RECENT
from orchestrator.console.look import Load, Look, for_everywhere, loads
from orchestrator.console.pages import tasks
from orchestrator.console.pages.executions import executions_url
from orchestrator.core import words
from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import STARTED
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.core.words import Kind
from orchestrator.workflows.models import Task

LOOKED_AT = 10_000
"""Of the executions of the last minutes, the newest so many are counted."""
WINDOW = timedelta(minutes=15)
WITHIN = "created:<15m"
"""The same, as a search."""
WORKERS_MAX = 60
OPEN = [status for status in ExecutionStatus if status not in TERMINAL]
WORK, TASKS, HELD = "executions", "tasks", "held"
PERMISSIONS = ("executions.read", "tasks.read", "workers.read")
NONE = Value(0, IntegerField())


@dataclass(frozen=True)
class Number:
    """A number, and the list of what it counts."""

    name: str
    count: int
    url: str
    kind: Kind = Kind.PLAIN
    note: str = ""
    spark: str = ""
    """The chart of what of it happened when, as SVG."""

    @property
    def text(self) -> str:
        return f"{self.count:,}"


@access.page("now", needs="", topics="execution,task,worker,presence,dlq,clock", is_alike=True)
def show(look: Look, request: HttpRequest) -> Context:
    """The things that are not well, some numbers, and the fleet in small."""
    context: Context = {"title": "Now", "here": "now"}
    counted = read_open(look)
    if look.may("executions.read"):
        context |= charts.context(look, request)
        sparks = context["sparks"]
        numbers = [replace(each, spark=sparks.get(each.name, "")) for each in recent(look)]
        context |= {"recent": numbers, "open": open_by_status(look, counted)}
    if look.may("tasks.read"):
        states = Counter({state: number for state, (number, _) in counted.tasks.items()})
        context["tasks"] = [Number(*each) for each in tasks.numbers(states)]
    if look.may("workers.read"):
        rows = heat.all_plain(look)
        urgent = heat.urgent(rows, WORKERS_MAX)
        more = len(rows) - len(urgent)
        context |= {"rows": urgent, "more": more, "sum": heat.summed(rows)}
    return context


def recent(look: Look) -> Sequence[Number]:
    """The numbers of what was accepted in the last minutes, and of what of it has ended."""
    counted = for_everywhere(look, ["executions.read"], RECENT, lambda: _count_recent(look))
    is_cut = counted["accepted"] >= LOOKED_AT
    numbers = [
        Number(
            "accepted",
            counted["accepted"],
            executions_url(WITHIN),
            note=f"of the newest {LOOKED_AT:,}" if is_cut else "",
        )
    ]
    for status in (s for s in ExecutionStatus if s in TERMINAL):
        if counted[status] or status in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED):
            kind = words.kind_of(status) if counted[status] else Kind.PLAIN
            url = executions_url(f"status:{status} {WITHIN}")
            numbers.append(Number(status, counted[status], url, kind))
    return numbers


def _count_recent(look: Look) -> Mapping[str, int]:
    """By status, and of all `accepted`."""
    accepted = created_between(look.now - WINDOW, None)
    rows = Execution.objects.visible_to(look.user).filter(accepted)
    newest = rows.order_by("-pk").values("status")[:LOOKED_AT]
    counted: dict[str, int] = newest.aggregate(
        accepted=Count("pk"),
        **{status: Count("pk", filter=Q(status=status)) for status in TERMINAL},
    )
    return counted


Counts = dict[str, tuple[int, datetime | None]]
"""The number of rows, and the time since which there is the oldest one; by status."""


@dataclass(frozen=True)
class Open:
    """The work that is open, of what the user may see, and what workers hold."""

    executions: Counts
    tasks: Counts
    loads: dict[int, Load]


def read_open(look: Look) -> Open:
    """Count what is open, and what workers hold, which `look` gets. Exact: partial indexes hold
    only what is open."""
    counted = for_everywhere(look, PERMISSIONS, OPEN_NOW, lambda: _read_open(look))
    look.loads = counted.loads
    return counted


def _read_open(look: Look) -> Open:
    """One statement."""
    parts = list(_open_parts(look))
    found: dict[str, list[Any]] = defaultdict(list)
    if parts:
        first, *others = parts
        for what, *row in first.union(*others, all=True):
            found[what].append(row)
    return Open(
        executions={status: (number, at) for status, _, number, _, at in found[WORK]},
        tasks={state: (number, at) for state, _, number, _, at in found[TASKS]},
        loads=loads((id, number, running) for _, id, number, running, _ in found[HELD]),
    )


def _open_parts(look: Look) -> Iterator[QuerySet[Any]]:
    if look.may("executions.read"):
        visible = Execution.objects.visible_to(look.user).open()
        yield _counted(WORK, visible, "status")
    if look.may("tasks.read"):
        yield _counted(TASKS, Task.objects.visible_to(look.user).open(), "state")
    if look.may("workers.read"):
        is_running = Count("pk", filter=Q(status__in=STARTED))
        yield _counted(HELD, look.dispatched(), Value("", CharField()), "worker_id", is_running)


def _counted(
    what: str, rows: QuerySet[Any], status: Any, worker: Any = NONE, running: Any = NONE
) -> QuerySet[Any]:
    grouped: QuerySet[Any] = rows.order_by().values_list(Value(what, CharField()), status, worker)
    counted: QuerySet[Any] = grouped.annotate(
        n=Count("pk"), running=running, oldest=Min("created_at")
    )
    return counted


def open_by_status(look: Look, counted: Open) -> Sequence[Number]:
    """Executions that are open, each status with its oldest one."""
    numbers = []
    for status in OPEN:
        number, oldest = counted.executions.get(status, (0, None))
        note = f"oldest {words.span((look.now - oldest).total_seconds())}" if oldest else ""
        kind = words.kind_of(status) if number else Kind.PLAIN
        numbers.append(Number(status, number, executions_url(f"status:{status}"), kind, note))
    return numbers
