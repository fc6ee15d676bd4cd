"""The life of an enforcement: one rule's answer to one event."""

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
