"""Protocols of the parts of a worker: the agent as they see it, and one another.

`agent.Agent` is the only host. The parts import this module and not that one, so that each is
independent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from uuid import UUID

    from orchestrator.core.executions import Contents, Ended
    from orchestrator.core.masking import Masker
    from orchestrator.core.models import Execution
    from orchestrator.core.reasons import Reason
    from orchestrator.core.states import AttemptKey


class Desk(Protocol):
    """The attempts that were offered, claimed, and are running."""

    pool: Any

    @property
    def claimed(self) -> Mapping[AttemptKey, Any]: ...
    @property
    def in_hand(self) -> Any: ...

    @property
    def held(self) -> Sequence[Any]: ...
    @property
    def ready(self) -> Collection[Any]: ...
    @property
    def slots_go_on(self) -> bool: ...

    def claim_waiting(self) -> None: ...
    def forget_waiting(self) -> None: ...
    def ask_again_for_held(self) -> None: ...
    def ended_last_second(self) -> int: ...
    def take_back(self, *, older_than_seconds: float) -> list[Execution]: ...
    def take_unbegun(self) -> list[Execution]: ...
    def serve(self, handed: list[tuple[Any, Any]]) -> None: ...
    def begin_probe(self) -> int: ...
    def end_probe(self) -> None: ...
    def has_nothing(self) -> bool: ...
    def go_on(self, attempts: Sequence[Any]) -> None: ...
    def not_begun(self, attempt: Any) -> None: ...
    def ended(self, attempt: Any, reason: Reason, result: dict[str, Any]) -> None: ...


class Offered(Protocol):
    """An attempt that a message has offered."""

    @property
    def key(self) -> AttemptKey: ...


class Answer(NamedTuple):
    """The outcome of a claim of a batch."""

    batch: list[Any]
    """The attempts to claim, as offered."""
    granted: list[Execution] | None
    """None if the database could not be asked."""
    held: Collection[AttemptKey] = ()
    """Not granted only because another transaction holds their rows."""
    contents: Mapping[UUID, Contents] = {}
    """The contents that the actions of the granted executions get, keys opened."""
    maskers: Mapping[UUID, Masker] = {}
    """The maskers of the secrets of each of them."""
    asked_at: float | None = None
    """The time at which the database was asked, by `time.monotonic`; None for just now."""


class Claimer(Protocol):
    def ask(self, batch: list[Any]) -> None: ...
    def take_answers(self) -> Iterator[Answer]: ...
    def flush(self, timeout_seconds: float) -> None: ...

    @property
    def answers(self) -> Collection[Answer]: ...


class Finisher(Protocol):
    @property
    def unrecorded(self) -> Mapping[AttemptKey, Reason]: ...

    def put(self, end: Ended) -> None: ...
    def flush(self, timeout_seconds: float) -> bool: ...


class LiveOutput(Protocol):
    def conclude(self, keys: Collection[AttemptKey]) -> None: ...


class Canceller(Protocol):
    def cancel(self, key: AttemptKey) -> None: ...
    def kill(self, attempt: Any) -> None: ...
    def came_early(self, key: AttemptKey) -> bool: ...


class Code(Protocol):
    """The code of packs that the worker lacks."""

    is_lacking: bool

    def look(self) -> None: ...


class Releases(Protocol):
    """The releases that are on this host."""

    def path_for(self, execution: Execution) -> str | None: ...
    def bring(self, attempt: Any) -> None: ...
    def lacks(self, release_id: int) -> bool: ...


class Pauses(Protocol):
    """The pauses of a worker: what it takes nothing of for a while."""

    def note(self, execution: Execution) -> None: ...
    def holds(self, execution: Execution) -> bool: ...


class Admission(Protocol):
    has_consumed: bool

    def begin(self) -> None: ...


class Heartbeat(Protocol):
    sentinel: Any
    sign: Any
    audit: Any

    @property
    def is_overdue(self) -> bool: ...

    def stop(self) -> None: ...


class Loop(Protocol):
    """The consumer's loop."""

    is_paused: bool

    @property
    def takes_work(self) -> bool: ...
    @property
    def is_connected(self) -> bool: ...

    def call_soon(self, do: Callable[[], None]) -> None:
        """Call this soon in the loop."""

    def wake(self) -> None:
        """Let the loop look for work."""

    def turns(self, *, within_seconds: float) -> bool:
        """Return True if it ticked recently, or need not."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def consume_again(self) -> None: ...


class Returns(Protocol):
    def are_waiting(self) -> bool: ...
    def give_back_soon(self, unbegun: Sequence[Execution], reason: Reason) -> None: ...
    def give_back_all(self, *, pool_is_down: bool) -> None: ...


class Departure(Protocol):
    def die(self, why: str) -> None: ...
    def finish_and_go(self) -> None: ...


class Host(Protocol):
    worker_id: int
    incarnation: int
    name: str
    capacity: int
    pool_kind: str
    is_stopping: bool
    stops: threading.Event

    @property
    def loop(self) -> Loop: ...
    @property
    def desk(self) -> Desk: ...
    @property
    def claimer(self) -> Claimer: ...
    @property
    def finisher(self) -> Finisher: ...
    @property
    def live_output(self) -> LiveOutput: ...
    @property
    def canceller(self) -> Canceller: ...
    @property
    def heartbeat(self) -> Heartbeat: ...
    @property
    def code(self) -> Code: ...
    @property
    def releases(self) -> Releases: ...
    @property
    def admission(self) -> Admission: ...
    @property
    def pauses(self) -> Pauses: ...
    @property
    def returns(self) -> Returns: ...
    @property
    def departure(self) -> Departure: ...
