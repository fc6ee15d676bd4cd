"""The lives of an enforcement, one rule's answer to one event, and of a sensor's assignment."""

from __future__ import annotations

import enum

from orchestrator.core import words
from orchestrator.core.state_machine.machine import Machine, table


class EnforcementState(enum.StrEnum):
    """The states of an enforcement."""

    CREATED = "created"
    EXECUTED = "executed"
    REJECTED = "rejected"
    SUPPRESSED = "suppressed"


E = EnforcementState

TERMINAL = frozenset({E.EXECUTED, E.REJECTED, E.SUPPRESSED})
KINDS = words.kinds(info="created", success="executed", danger="rejected")

ENFORCEMENTS = Machine(
    states=E,
    initial=E.CREATED,
    terminal=TERMINAL,
    ended=TERMINAL,
    transitions=table(
        E,
        (
            "execute", "created", E.EXECUTED,
            "the executor: its execution was requested, in the same transaction",
        ),
        (
            "reject", "created", E.REJECTED,
            "the executor: its parameters have no value, or the action or the owner's permissions "
            "refuse it",
        ),
        (
            "suppress", "created", E.SUPPRESSED,
            "the executor: the rule answered the same a moment ago",
        ),
    ),
    who_moves_it_on={
        E.CREATED: "the executor, by the message `enforcement.created` or by looking every second",
        E.EXECUTED: "nobody: terminal",
        E.REJECTED: "nobody: terminal",
        E.SUPPRESSED: "nobody: terminal",
    },
    reason_column="reason",
    keeps_history=False,
)  # fmt: skip


class AssignmentState(enum.StrEnum):
    """The states of a sensor's assignment to a sensor service."""

    VACANT = "vacant"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    BACKING_OFF = "backing_off"
    UNWANTED = "unwanted"


A = AssignmentState

HELD = frozenset({A.STARTING, A.RUNNING, A.ENDING, A.BACKING_OFF})
"""States in which a service has the lease."""
REPORTS = frozenset({A.STARTING, A.RUNNING, A.ENDING})
"""States in which what the sensor reports is recorded."""
ASSIGNMENT_KINDS = words.kinds(info="starting ending", warning="vacant", danger="backing_off")

ASSIGNMENTS = Machine(
    states=A,
    initial=A.VACANT,
    terminal=frozenset(),
    ended=frozenset(),
    transitions=table(
        A,
        (
            "+take", "vacant backing_off", A.STARTING,
            "a sensor service that fits, when `next_start_at` has come: it has a lease of 30 s",
        ),
        ("ready", "starting", A.RUNNING, "its service: the first line, or 10 s of life"),
        (
            "fail", "starting running", A.BACKING_OFF,
            "its service: the sensor ended or fell silent; it starts again after 1, 2, 4 .. 60 s",
        ),
        (
            "give_up_lease", "starting running backing_off", A.VACANT,
            "its service, which stops",
        ),
        (
            "+lose", "starting running backing_off", A.VACANT,
            "any sensor service or executor: the lease has run out",
        ),
        (
            "end", "starting running", A.ENDING,
            "whoever disables or restarts a sensor of a pack: its service takes its last lines",
        ),
        (
            "+unwant", "vacant starting running ending backing_off", A.UNWANTED,
            "whoever disables the sensor, or the last rule that waits for a poll; of an ending "
            "one, its service, or anybody a lease and a grace later",
        ),
        ("want", "unwanted", A.VACANT, "whoever enables it, or a rule that waits for a poll"),
    ),
    who_moves_it_on={
        A.VACANT: "a sensor service, within a second",
        A.STARTING: "its service; any other, or an executor, when the lease has run out",
        A.RUNNING: "its service; any other, or an executor, when the lease has run out",
        A.ENDING: "its service, when its last lines are recorded; any other, or an executor, a "
        "lease and a grace later",
        A.BACKING_OFF: "its service, at `next_start_at`",
        A.UNWANTED: "whoever enables the sensor",
    },
    history_keys={"assignment_id": "id"},
    reason_column="problem",
    entered_columns=("changed_at",),
)  # fmt: skip


class Refused(enum.StrEnum):
    """The reasons for which a rule's answer is no execution."""

    CRITERIA = "criteria_failed"
    """The rule's criteria could not be evaluated."""
    PARAMETERS = "parameters_failed"
    """An expression in the rule's parameters has no value."""
    OWNER = "owner_refused"
    """The rule's owner is disabled, or lacks a permission."""
    ACTION = "action_refused"
    """The action is unknown, disabled, or does not take the parameters."""
    FAULT = "internal_error"
    """A fault of Muster."""
