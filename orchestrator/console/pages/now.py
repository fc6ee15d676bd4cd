"""Now: whether anything is wrong, and what is going on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db.models import Count, Min, Q
from django.http import HttpRequest

from orchestrator.console import access, charts, heat
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.console.pages import tasks
from orchestrator.console.pages.executions import executions_url
from orchestrator.core import words
from orchestrator.core.models import Execution
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.core.words import Kind

LOOKED_AT = 10_000
"""Of the executions of the last minutes, the newest so many are counted."""
WINDOW = timedelta(minutes=15)
WITHIN = "created:<15m"
"""The same, as a search."""
WORKERS_MAX = 60
OPEN = [status for status in ExecutionStatus if status not in TERMINAL]


@dataclass(frozen=True)
class Number:
    """A number, and the list of what it counts."""

    name: str
    count: int
    url: str
    kind: Kind = Kind.PLAIN
    note: str = ""
    spark: str = ""
    """What of it happened when, as SVG."""

    @property
    def text(self) -> str:
        return f"{self.count:,}"


@access.page("now", needs="", topics="execution,task,worker,presence,dlq,clock")
def show(look: Look, request: HttpRequest) -> Context:
    """What is not well, some numbers, and the fleet in small."""
    context: Context = {"title": "Now", "here": "now"}
    if look.may("executions.read"):
        context |= charts.context(look, request)
        sparks = context["sparks"]
        numbers = [replace(each, spark=sparks.get(each.name, "")) for each in recent(look)]
        context |= {"recent": numbers, "open": open_by_status(look)}
    if look.may("tasks.read"):
        context["tasks"] = [Number(*each) for each in tasks.numbers(look)]
    if look.may("workers.read"):
        rows = heat.all_plain(look)
        urgent = heat.urgent(rows, WORKERS_MAX)
        more = len(rows) - len(urgent)
        context |= {"rows": urgent, "more": more, "sum": heat.summed(rows)}
    return context


def recent(look: Look) -> Sequence[Number]:
    """What was accepted in the last minutes, and what of it has ended."""
    accepted = created_between(look.now - WINDOW, None)
    rows = Execution.objects.visible_to(look.user).filter(accepted)
    newest = rows.order_by("-pk").values("status")[:LOOKED_AT]
    failed = ExecutionStatus.FAILED
    counted = newest.aggregate(
        accepted=Count("pk"),
        **{status: Count("pk", filter=Q(status=status)) for status in TERMINAL},
    )
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
        if counted[status] or status in (ExecutionStatus.COMPLETED, failed):
            kind = words.kind_of(status) if counted[status] else Kind.PLAIN
            url = executions_url(f"status:{status} {WITHIN}")
            numbers.append(Number(status, counted[status], url, kind))
    return numbers


def open_by_status(look: Look) -> Sequence[Number]:
    """All that is open. Exact: the partial index holds only these."""
    rows = Execution.objects.visible_to(look.user).open().order_by().values_list("status")
    found = {
        status: (number, oldest)
        for status, number, oldest in rows.annotate(n=Count("pk"), oldest=Min("created_at"))
    }
    numbers = []
    for status in OPEN:
        number, oldest = found.get(status, (0, None))
        note = f"oldest {words.span((look.now - oldest).total_seconds())}" if oldest else ""
        kind = words.kind_of(status) if number else Kind.PLAIN
        numbers.append(Number(status, number, executions_url(f"status:{status}"), kind, note))
    return numbers
