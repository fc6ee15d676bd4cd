"""The life of an errand."""

from __future__ import annotations

import enum

from orchestrator.core.state_machine.machine import Machine, table


class ErrandState(enum.StrEnum):
    ASKED = "asked"
    UNDER_WAY = "under_way"
    DONE = "done"
    DROPPED = "dropped"


E = ErrandState

ERRANDS = Machine(
    states=E,
    initial=E.ASKED,
    terminal=frozenset({E.DONE, E.DROPPED}),
    ended=frozenset({E.DONE, E.DROPPED}),
    transitions=table(
        E,
        ("+go", "asked", E.UNDER_WAY, "the executor: it has an execution"),
        ("finish", "under_way", E.DONE, "the executor: its execution completed"),
        ("drop", "asked under_way", E.DROPPED, "the executor, or maintenance"),
    ),
    who_moves_it_on={
        E.ASKED: "the executor",
        E.UNDER_WAY: "the executor, when its execution has ended",
        E.DONE: "nobody: terminal",
        E.DROPPED: "nobody: terminal",
    },
    history_keys={"errand_id": "id"},
)
