"""Every status and state, every way from one to another, and the functions that go it.

A transition is a compare-and-swap on (id, status, attempt): it happens if the row still is what
the caller saw, and otherwise not at all. Losing that race is normal and is called
`TransitionConflict`. Database triggers keep rows in a terminal status, and all history, as they
are, whoever tries.

Executions, tasks and steps each have a `Machine`: a table of transitions, and the columns that it
writes. A model names its own in its class. Names without a machine's in them are those of
executions.
"""

from orchestrator.state_machine.executions import (
    EXECUTIONS,
    OPEN,
    TERMINAL,
    TRANSITIONS,
    WHO_MOVES_IT_ON,
    ExecutionStatus,
)
from orchestrator.state_machine.machine import (
    Machine,
    Move,
    Transition,
    TransitionConflict,
    UnknownEvent,
)
from orchestrator.state_machine.postgresql import Fragment, Terms
from orchestrator.state_machine.steps import STEPS, StepState
from orchestrator.state_machine.tasks import TASKS, TaskState
from orchestrator.state_machine.transitions import MachineQuerySet, machine_of, transition

__all__ = [
    "EXECUTIONS",
    "OPEN",
    "STEPS",
    "TASKS",
    "TERMINAL",
    "TRANSITIONS",
    "WHO_MOVES_IT_ON",
    "ExecutionStatus",
    "Fragment",
    "Machine",
    "MachineQuerySet",
    "Move",
    "StepState",
    "TaskState",
    "Terms",
    "Transition",
    "TransitionConflict",
    "UnknownEvent",
    "machine_of",
    "transition",
]
