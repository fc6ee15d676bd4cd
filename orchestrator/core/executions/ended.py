"""The end of an attempt, as its worker reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason


@dataclass(frozen=True)
class Ended:
    """The end of one claimed attempt, as its worker saw it."""

    execution: Execution
    """As claimed. Never reloaded: a fresh attempt number would defeat the fence."""
    reason: Reason
    result: Mapping[str, Any]
