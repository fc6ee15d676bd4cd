"""What an execution asks of its worker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from orchestrator.core.models import Execution

RESERVED = "reserved"
"""A worker with this label takes only what selects it by the same label, or by its id."""


class Need(NamedTuple):
    """What an execution asks of its worker."""

    runtime: str
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted; each must be as it is here."""
    code: tuple[str, ...] = ()
    """Its pack and its action, none of which the worker may lack."""

    @classmethod
    def of(cls, runtime: str, selector: Mapping[str, str] | None, code: Iterable[str] = ()) -> Need:
        return cls(runtime, tuple(sorted(selector.items())) if selector else (), tuple(code))

    @classmethod
    def of_execution(cls, execution: Execution) -> Need:
        return cls.of(execution.action.runtime, execution.wanted_labels, execution.needed_code)

    def is_met_by(
        self,
        runtimes: Iterable[str],
        labels: Mapping[str, str],
        missing_code: Collection[str] = (),
    ) -> bool:
        return (
            self.runtime in runtimes
            and all(labels.get(key) == value for key, value in self.labels)
            and not any(name in missing_code for name in self.code)
        )

    def may_go_to(
        self,
        runtimes: Iterable[str],
        labels: Mapping[str, str],
        missing_code: Collection[str] = (),
    ) -> bool:
        """Whether a worker meets it, and is not kept for others."""
        return self.may_have(labels) and self.is_met_by(runtimes, labels, missing_code)

    def may_have(self, labels: Mapping[str, str]) -> bool:
        """Whether a worker of these labels is for everybody, or reserved for such as it."""
        return RESERVED not in labels or (RESERVED, labels[RESERVED]) in self.labels
