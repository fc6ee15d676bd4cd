"""State tables, and the only functions that move a row from one state to another.

A transition is a compare-and-swap on (id, status, attempt): it happens only if the row is still
what the caller saw. Losing that race is normal and raises `TransitionConflict`. Database triggers
protect rows in a terminal status, and all history, against every change.

`executions.placing` inserts rows that have made their first transition already: there is nothing to
compare yet.

Each model with states has a `Machine`: a table of transitions, and the columns that it writes. The
model names it in its class. Each app's tables are in its `states`.
"""

from orchestrator.core.state_machine.machine import (
    Machine,
    Move,
    Transition,
    TransitionConflict,
    UnknownEvent,
)
from orchestrator.core.state_machine.postgresql import Terms
from orchestrator.core.state_machine.transitions import MachineQuerySet, machine_of, transition

__all__ = [
    "Machine",
    "MachineQuerySet",
    "Move",
    "Terms",
    "Transition",
    "TransitionConflict",
    "UnknownEvent",
    "machine_of",
    "transition",
]
