"""Fleet: who is up, how full, how fresh; services besides workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest

from orchestrator.console import access, heat
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core import presence, words
from orchestrator.core.presence import Life
from orchestrator.core.words import Kind

HOST = "host"
ROWS_MAX = 200
"""Of the table; the map has all workers."""


@dataclass(frozen=True)
class ServiceRow:
    """A service as the table shows it."""

    life: Life
    now: datetime
    state: str
    kind: Kind

    @property
    def heard(self) -> str:
        return f"{words.span(self.life.silence(self.now).total_seconds())} ago"

    @property
    def since(self) -> str:
        return words.span((self.now - self.life.started_at).total_seconds())


@access.page("fleet", needs="workers.read", topics="execution,worker,presence,clock")
def show(look: Look, request: HttpRequest) -> Context:
    """The heat map, the table of workers, the services."""
    rows = heat.rows(look)
    names = [HOST, *heat.label_names(look.workers)]
    by = request.GET.get("group", HOST)
    by = by if by in names else HOST
    return {
        "title": "Fleet",
        "here": "fleet",
        "rows": heat.urgent(rows, ROWS_MAX),
        "workers": len(rows),
        "sum": heat.summed(rows),
        "groups": heat.grouped(rows, by),
        "group_by": by,
        "group_names": names,
        "services": services(look),
    }


def services(look: Look) -> list[ServiceRow]:
    """Those that are alive, and those that fell silent; not those that ended by themselves."""
    silent = presence.silent(look.lives, look.now)
    rows = [ServiceRow(life, look.now, "silent", Kind.DANGER) for life in silent]
    alive = presence.alive(look.lives, look.now)
    for life in alive:
        state, kind = ("in trouble", Kind.DANGER) if life.trouble else ("alive", Kind.SUCCESS)
        rows.append(ServiceRow(life, look.now, state, kind))
    return rows
