"""What the parts of a worker may ask of it: its agent, as they see it, and one another.

`agent.Agent` is the only one. The parts name this and not that, so that each stands alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from orchestrator.core.executions import Ended
    from orchestrator.core.models import Execution
    from orchestrator.core.models.claiming import AttemptKey


class Desk(Protocol):
    """What was offered, claimed, and is being run."""

    pool: Any

    @property
    def claimed(self) -> Mapping[AttemptKey, Any]: ...
    @property
    def in_hand(self) -> Any: ...

    def idle_slots(self) -> int: ...


class Offered(Protocol):
    """An attempt that a message has offered."""

    @property
    def key(self) -> AttemptKey: ...


class Answer(NamedTuple):
    """What became of a batch that was to be claimed."""

    batch: list[Any]
    """Of what was offered."""
    granted: list[Execution] | None
    """None when the database could not be asked."""
    held: Collection[AttemptKey] = ()
    """Not granted only because another transaction has their rows."""


class Claimer(Protocol):
    def ask(self, batch: list[Any]) -> None: ...
    def take_answers(self) -> Iterator[Answer]: ...


class Finisher(Protocol):
    def put(self, end: Ended) -> None: ...


class Canceller(Protocol):
    def cancel(self, key: AttemptKey) -> None: ...
    def came_early(self, key: AttemptKey) -> bool: ...


class Code(Protocol):
    """What the worker lacks of its packs."""

    is_lacking: bool

    def look(self) -> None: ...


class Admission(Protocol):
    has_consumed: bool

    def begin(self) -> None: ...


class Host(Protocol):
    worker_id: int
    incarnation: int
    name: str
    capacity: int
    pool_kind: str
    is_stopping: bool
    is_paused: bool
    stops: threading.Event

    @property
    def desk(self) -> Desk: ...
    @property
    def claimer(self) -> Claimer: ...
    @property
    def finisher(self) -> Finisher: ...
    @property
    def canceller(self) -> Canceller: ...
    @property
    def code(self) -> Code: ...
    @property
    def admission(self) -> Admission: ...
    @property
    def takes_work(self) -> bool: ...
    @property
    def is_connected(self) -> bool: ...

    def on_loop(self, do: Callable[[], None]) -> None:
        """Have the consumer's loop do this soon."""

    def wake(self) -> None:
        """Let the consumer's loop look for work."""

    def loop_turns(self, *, within_seconds: float) -> bool:
        """Whether the consumer's loop ticked recently, or has no reason to."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def die(self, why: str) -> None: ...
    def finish_and_go(self) -> None: ...
