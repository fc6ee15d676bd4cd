"""Executions and their history, as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from typing import Required, TypedDict

    class Options(TypedDict, total=False):
        """The fields of a request besides its action and its parameters; docs/api.md has each."""

        worker_id: int
        worker_selector: Mapping[str, str]
        queue: str
        priority: int
        timeout_seconds: float
        queue_ttl_ms: int
        scheduled_timeout_seconds: float
        retry: Mapping[str, Any]
        deadline_seconds: float
        idempotency_key: str | None
        correlation_id: str
        reason: str

    class NewExecution(Options, total=False):
        """One of many requests."""

        action_ref: Required[str]
        parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """One transition of an execution."""

    event: str
    from_status: str
    to_status: str
    attempt: int
    actor: str
    reason: str
    at: datetime

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Event:
        known = {name: values[name] for name in cls.__dataclass_fields__}
        return cls(**known | {"at": datetime.fromisoformat(values["at"])})


@dataclass(frozen=True)
class Execution:
    """An execution at the moment of the answer."""

    id: UUID
    action_ref: str
    status: str
    reason: str
    """The reason of its end; that of its last attempt while it is open."""
    attempt: int
    retry_count: int
    parameters: Any = field(repr=False)
    result: Any = field(repr=False)
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime
    history: tuple[Event, ...] = field(repr=False)
    """Every transition, oldest first; empty in the answer to a submit or a cancel."""
    fields: Mapping[str, Any] = field(repr=False)
    """All that the API answered."""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Execution:
        names = ("action_ref", "status", "reason", "attempt", "retry_count", "parameters", "result")
        times = ("created_at", "started_at", "ended_at", "deadline_at")
        return cls(
            id=UUID(values["id"]),
            history=tuple(map(Event.read, values.get("history", ()))),
            fields=values,
            **{name: values[name] for name in names},
            **{name: _time(values[name]) for name in times},
        )

    @property
    def is_over(self) -> bool:
        """True if it has ended, however."""
        return self.ended_at is not None

    @property
    def is_completed(self) -> bool:
        return self.status == "completed"

    @property
    def message(self) -> str:
        """The message about what went wrong; empty if there is none."""
        result = self.result
        return str(result.get("message", "")) if isinstance(result, dict) else ""


def _time(value: str | None) -> Any:
    return None if value is None else datetime.fromisoformat(value)
