"""The facts that criteria are evaluated over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Facts:
    """One event. All values are JSON; nothing is changed by an evaluation."""

    trigger: Any
    """The event's payload."""
    received_at: datetime
    """The time that stands for "now", so that evaluating again gives the same answer."""
    event: Mapping[str, Any] = field(default_factory=dict)
    """The facts that are known of the event besides its payload, such as its id and its key."""
