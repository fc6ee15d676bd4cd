"""Health checks: the process is live, and ready for its work. They need no token."""

from __future__ import annotations

import time
from typing import Literal

from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, Field

from orchestrator.core import alarms, clock, reachability
from orchestrator.core.api.problems import Problem
from orchestrator.core.api.replies import reply

router = Router(tags=["health"])


def _missing_services() -> list[str]:
    try:
        return [alarm.title for alarm in alarms.services(clock.now())]
    except (DatabaseError, InterfaceError):
        return []
    finally:
        connection.close()


services = reachability.Probe(_missing_services)


class Live(BaseModel):
    """This process answers."""

    status: Literal["live"] = "live"


class Ready(BaseModel):
    """This process can do its work. Without the broker it still accepts executions."""

    status: Literal["ready"] = "ready"
    database: Literal["reachable"] = "reachable"
    broker: Literal["reachable", "unreachable"] = Field(description="Not needed to accept.")
    warnings: list[str] = Field(
        default=[],
        description="What does not work elsewhere: no executor works, a gate takes nothing in.",
    )


@router.get("/live", auth=None, response={200: Live})
def live(request: HttpRequest) -> HttpResponse:
    """This process answers. No server is asked."""
    return reply(Live())


@router.get("/ready", auth=None, response={200: Ready, 503: None})
def ready(request: HttpRequest) -> HttpResponse:
    """The database can be reached and takes writes. Answers within about two seconds, even if a
    server is down."""
    until = time.monotonic() + reachability.PATIENCE_SECONDS
    broker, writable = reachability.broker.ask(), reachability.database_writes.ask()
    asked = services.ask(), reachability.warnings.ask()
    if not reachability.yes(writable, until):
        detail = "The database cannot be reached, or takes no writes"
        raise Problem(503, "not-ready", "Not ready", detail, headers={"Retry-After": "5"})
    return reply(
        Ready(
            broker="reachable" if reachability.yes(broker, until) else "unreachable",
            warnings=[
                line
                for answer in asked
                for line in reachability.in_time(answer, until, otherwise=[])
            ],
        )
    )
