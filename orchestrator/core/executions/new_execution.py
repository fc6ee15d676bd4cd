"""An execution as a caller asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class NewExecution:
    """An execution as a caller asks for it. None means the action's own value."""

    action_ref: str = ""
    """May be empty if the queue has an action of its own."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    release_id: int | None = None
    """The release of its pack that it runs; None means the one that is installed."""
    queue: str | None = None
    """Its queue; None means that of the action, or the default one."""
    retry_count: int = 0
    """Attempts that were lost before it was accepted; then it is in the retry lane of its queue."""
    worker_id: int | None = None
    worker_selector: Mapping[str, str] | None = None
    """Labels that its worker must have, besides those that its action requires."""
    priority: int | None = None
    """None means that of its queue, or 0."""
    timeout_seconds: float | None = None
    queue_ttl_ms: int | None = None
    scheduled_timeout_seconds: float | None = None
    retry: Mapping[str, Any] | None = None
    """Keys of a retry policy that override its action's."""
    deadline_seconds: float | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    reason: str = ""
    """The reason why it is requested; up to 500 characters of it are kept."""
