"""Tables of states, and the only functions that go from one to another.

A transition is a compare-and-swap on (id, status, attempt): it happens if the row still is what
the caller saw, and otherwise not at all. Losing that race is normal and is called
`TransitionConflict`. Database triggers keep rows in a terminal status, and all history, as they
are, whoever tries.

Whatever has a life has a `Machine`: a table of transitions, and the columns that it writes. A model
names its own in its class. Each app's tables are in its `states`.
"""

from orchestrator.core.state_machine.machine import (
    Machine,
    Move,
    Transition,
    TransitionConflict,
    UnknownEvent,
)
from orchestrator.core.state_machine.postgresql import Fragment, Terms
from orchestrator.core.state_machine.transitions import MachineQuerySet, machine_of, transition

__all__ = [
    "Fragment",
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
