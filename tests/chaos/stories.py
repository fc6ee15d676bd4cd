"""A run in which all went well, for the tests of the checker to bend."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.chaos.facts import Accepted, Event, Evidence, Fault, Life, Line, Row, Sighting

E = "e1"
RESULT = {"mark": "its own"}

STORY = {
    "schedule": ("requested", "scheduled", 1, 100.1),
    "claim": ("scheduled", "running", 1, 100.2),
    "complete": ("running", "completed", 1, 101.0),
    "fail": ("running", "failed", 1, 101.0),
    "abandon": ("running", "abandoned", 1, 108.0),
    "time_out": ("running", "timeout", 1, 108.2),
    "expire": ("scheduled", "failed", 1, 108.1),
    "reject": ("requested", "failed", 0, 101.0),
    "retry": ("running", "requested", 1, 102.0),
    "give_back": ("running", "requested", 1, 102.0),
    "defer": ("running", "requested", 1, 100.4),
}


def event(like: str, **changes: Any) -> Event:
    from_status, to_status, attempt, at = STORY[like]
    actor = "w1" if like in ("claim", "complete", "fail") else "somebody"
    told = Event(E, like, from_status, to_status, attempt, actor, "", at)
    return dataclasses.replace(told, **changes)


def row(**changes: Any) -> Row:
    told = Row(E, "chaos.once", False, "completed", "succeeded", 1, 160.0, 101.0, "same", 100.0)
    return dataclasses.replace(told, **{"result": RESULT, **changes})


def truth(**changes: Any) -> Evidence:
    """One execution was accepted, ran once and completed, on one of two workers."""
    evidence = Evidence(
        accepted=[Accepted(E, at=100.0, deadline_at=160.0, action="chaos.once")],
        rows=[row()],
        events=[event("schedule"), event("claim"), event("complete")],
        lines=[Line("start", E, 1, 7, 100.3), Line("end", E, 1, 7, 100.9, RESULT)],
        sightings=[Sighting(E, 1, 7, 100.5)],
        queues={"muster.dlx.queue": 0, "muster.maintenance.queue": 3},
        faults=[Fault("kill worker", 40.0, 40.0, "w1", frozenset({"w1"}))],
        terminal_digests={E: "same"},
        lives=[Life("w1", 10.0), Life("w2", 10.0)],
    )
    return dataclasses.replace(evidence, **changes)


def ended(like: str, reason: str, status: str, *, at: float = 0.0, **more: Any) -> Evidence:
    """The same, but its attempt ended in this way, as claimed by w1 or not claimed at all."""
    end = event(like, reason=reason, **({"at": at} if at else {}))
    before = [event("schedule")] if end.from_status != "requested" else []
    lines = []
    if end.from_status == "running":
        before.append(event("claim"))
        lines = [Line("start", E, 1, 7, 100.3)]
    known = more.pop("row", {})
    return truth(
        rows=[row(status=status, reason=reason, ended_at=end.at, attempt=end.attempt, **known)],
        events=[*before, end, *more.pop("events", [])],
        lines=more.pop("lines", lines),
        sightings=[],
        **more,
    )


def fault(kind: str, at: float, seconds: float = 0.0, *workers: str) -> Fault:
    return Fault(kind, at, at + seconds, "", frozenset(workers))
