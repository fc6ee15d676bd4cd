"""The life of an inquiry: one question to people."""

from __future__ import annotations

import enum

from orchestrator.core import words
from orchestrator.core.state_machine.machine import Machine, table


class InquiryState(enum.StrEnum):
    """The states of an inquiry."""

    PENDING = "pending"
    RESPONDED = "responded"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


I = InquiryState  # noqa: E741 - as in the other tables

TERMINAL = frozenset({I.RESPONDED, I.TIMED_OUT, I.CANCELLED})
ENDS = words.kinds(success="responded", danger="timed_out")
KINDS = ENDS | words.kinds(warning="pending")
"""Other apps have a state `pending`, too, in another colour."""

INQUIRIES = Machine(
    states=I,
    initial=I.PENDING,
    terminal=TERMINAL,
    ended=TERMINAL,
    transitions=table(
        I,
        (
            "+respond", "pending", I.RESPONDED,
            "whoever may answer, before `expires_at`; carries the response",
        ),
        ("+expire", "pending", I.TIMED_OUT, "the executor, after `expires_at`"),
        (
            "+cancel", "pending", I.CANCELLED,
            "api, or with the execution or the task that it holds up",
        ),
    ),
    who_moves_it_on={
        I.PENDING: "whoever may answer; after `expires_at` the executor, which looks every 5 s",
        I.RESPONDED: "nobody: terminal",
        I.TIMED_OUT: "nobody: terminal",
        I.CANCELLED: "nobody: terminal",
    },
    history_keys={"inquiry_id": "id"},
    reason_column="reason",
)  # fmt: skip
