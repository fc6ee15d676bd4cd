"""The life of a bulk order."""

from __future__ import annotations

import enum

from orchestrator.core import words
from orchestrator.core.state_machine.machine import Machine, table


class OrderState(enum.StrEnum):
    """The states of a bulk order."""

    ORDERED = "ordered"
    WORKING = "working"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


S = OrderState

TERMINAL = frozenset({S.DONE, S.STOPPED, S.FAILED})
KINDS = words.kinds(
    info="ordered", primary="working", success="done", warning="stopped", danger="failed"
)

ORDERS = Machine(
    states=S,
    initial=S.ORDERED,
    terminal=TERMINAL,
    ended=TERMINAL,
    transitions=table(
        S,
        ("begin", "ordered", S.WORKING, "an executor, before its first batch"),
        ("finish", "working", S.DONE, "the executor, in the transaction of its last batch"),
        ("stop", "ordered working", S.STOPPED, "whoever has `bulk.order`; no batch follows"),
        (
            "fail", "ordered working", S.FAILED,
            "the executor: whoever ordered it is gone, or the search has lost its meaning",
        ),
    ),
    who_moves_it_on={
        S.ORDERED: "an executor, by the message `bulk.ordered` or by looking every second",
        S.WORKING: "an executor, a batch at a time; any other continues at its mark",
        S.DONE: "nobody: terminal",
        S.STOPPED: "nobody: terminal",
        S.FAILED: "nobody: terminal",
    },
    stamps={S.WORKING: "started_at"},
    reason_column="end_reason",
    keeps_history=False,
)  # fmt: skip
