"""The requirements of executions on their workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from orchestrator.core import isolation as levels
from orchestrator.core.models import Execution
from orchestrator.core.queue_terms import DEFAULT, queue_of

RESERVED = "reserved"
"""A worker with this label takes only executions that select it by the same label, or by its id."""


class Offer(Protocol):
    """The properties that do not change during a worker's life: a row of it has them, and
    placement's copy."""

    @property
    def runtimes(self) -> Collection[str]: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def isolation(self) -> str: ...
    @property
    def queues(self) -> Mapping[str, int | None]: ...


class Need(NamedTuple):
    """The requirements of an execution on its worker."""

    runtime: str
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted; the worker must have each with the same value."""
    code: tuple[str, ...] = ()
    """Its pack and its action; the worker may lack neither."""
    isolation: str = levels.PROCESS
    """The least that the worker must give to processes."""
    queue: str = DEFAULT
    """Its queue, or the retry lane of it, as workers subscribe to it."""
    paused: str = ""
    """Its action, if some worker pauses that: see `fleet.pauses`. Empty for work of a queue."""

    @classmethod
    def of(
        cls,
        runtime: str,
        selector: Mapping[str, str] | None,
        code: Iterable[str] = (),
        isolation: str = levels.PROCESS,
        queue: str = DEFAULT,
    ) -> Need:
        labels = tuple(sorted(selector.items())) if selector else ()
        return cls(runtime, labels, tuple(code), isolation, queue)

    @classmethod
    def of_execution(cls, execution: Execution) -> Need:
        return cls.of(
            execution.action.runtime,
            execution.wanted_labels,
            execution.needed_code,
            execution.needed_isolation,
            execution.subscription,
        )

    def is_met_by(self, offer: Offer, missing_code: Collection[str] = ()) -> bool:
        return (
            self.runtime in offer.runtimes
            and levels.is_enough(offer.isolation, self.isolation)
            and all(offer.labels.get(key) == value for key, value in self.labels)
            and not any(name in missing_code for name in self.code)
        )

    def may_go_to(self, offer: Offer, missing_code: Collection[str] = ()) -> bool:
        """Return True if a worker meets it, serves its queue, and is not reserved for others."""
        return self.may_have(offer) and self.is_met_by(offer, missing_code)

    def may_have(self, offer: Offer) -> bool:
        """Return True if a worker serves its queue, and is for everybody or reserved for this."""
        labels = offer.labels
        is_open = RESERVED not in labels or (RESERVED, labels[RESERVED]) in self.labels
        return is_open and self.is_served_by(offer.queues)

    def is_served_by(self, queues: Mapping[str, int | None]) -> bool:
        """Return True if a worker with these subscriptions serves its queue.

        A worker of the queue itself serves its retry lane too: `Placement` asks it only while no
        worker subscribes to that lane.
        """
        if not queues:
            return self.queue == DEFAULT
        return self.queue in queues or queue_of(self.queue) in queues
