"""The end of an attempt, as its worker reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason

RETRY_AFTER = "retry_after_seconds"
"""The key of a result by which an action that asks to be run again says when."""


@dataclass(frozen=True)
class Ended:
    """The end of one claimed attempt, as its worker saw it."""

    execution: Execution
    """As claimed. Never reloaded: a fresh attempt number would defeat the fence."""
    reason: Reason
    result: Mapping[str, Any]
    began_ns: int = 0
    """The time at which its action began, by the clock of its worker; 0 if it did not, or nothing
    is traced."""
    ended_ns: int = 0
