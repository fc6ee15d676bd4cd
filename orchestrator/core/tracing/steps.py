"""The spans of an execution, as they are handed to OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from orchestrator.core.states import AttemptKey


class Step(StrEnum):
    """A span of an attempt."""

    REQUEST = "execution request"
    SCHEDULE = "execution schedule"
    DISPATCH = "execution dispatch"
    CLAIM = "execution claim"
    RUN = "execution run"
    END = "execution end"
    COMPLETED = "execution completed"


class Span(NamedTuple):
    """One step of an attempt, as it is recorded; its times are nanoseconds of this machine."""

    key: AttemptKey
    parent: Step
    attributes: Mapping[str, Any]
    began_ns: int
    ended_ns: int = 0
    """0: now."""
    fault: str = ""
