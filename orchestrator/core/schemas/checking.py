"""One check of a value: its steps are counted, and it ends when there are too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.core.errors import MusterError
from orchestrator.core.schemas import canonical, patterns

STEP_LIMIT = 1_000_000
"""Steps of one check. A keyword that is applied is one, and more where it looks at much."""

STATES_A_STEP = 150
"""RE2's worst case, in states times characters, that takes as long as a step."""

Path = tuple[Any, ...]
"""The way to a value: `()`, or the way to its parent and the last step."""


class TooCostly(MusterError):
    """The value is too costly to check."""


class Said(str):
    """A description of what was found, instead of a value to be quoted."""

    __slots__ = ()


class Unread(str):
    """A text that is not known yet: it fits whatever a schema says of texts."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A value that does not fit. `expected` comes from the schema alone, `found` from the value."""

    path: Path
    expected: str
    found: Any

    @property
    def steps(self) -> tuple[str | int, ...]:
        """The way to the value, from the top."""
        steps, path = [], self.path
        while path:
            path, step = path
            steps.append(step)
        return tuple(reversed(steps))


class Rules(Protocol):
    """The methods of a document that a check needs."""

    def rules(self, schema: dict[str, Any]) -> Sequence[Rule]: ...

    def resolve(self, reference: str) -> Any: ...

    def keys(self, values: list[Any]) -> frozenset[Any]: ...


class Check:
    """One check of one value against a document, and the steps that it has left."""

    def __init__(self, document: Rules, *, steps: int = STEP_LIMIT) -> None:
        self.document = document
        self.steps_left = steps

    def spend(self, steps: int) -> None:
        """Count steps. Raises TooCostly when there are no more."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TooCostly

    def findings(self, value: Any, schema: Any, path: Path) -> Iterator[Finding]:
        """Find all that does not fit. Raises TooCostly."""
        self.spend(1)
        if schema is True:
            return
        if schema is False:
            yield Finding(path, "nothing here", value)
            return
        for keyword, kinds, argument in self.document.rules(schema):
            self.spend(1)
            if isinstance(value, kinds):
                yield from keyword(self, argument, value, schema, path)

    def fits(self, value: Any, schema: Any) -> bool:
        """Return True if the value fits the schema; it stops at the first finding."""
        return next(self.findings(value, schema, ()), None) is None

    def matches(self, pattern: str, text: str) -> bool:
        """Return True if the pattern matches somewhere in the text."""
        self.spend(1 + len(text) * patterns.size(pattern) // STATES_A_STEP)
        return patterns.matches(pattern, text)

    def key(self, value: Any) -> Any:
        """Return the value's canonical key."""
        key = canonical.key(value)
        self.spend(canonical.weight(key))
        return key


Keyword = Callable[[Check, Any, Any, dict[str, Any], Path], Iterator[Finding]]
"""Called with the check, the keyword's argument, the value, the schema around it and the path."""

Rule = tuple[Keyword, Any, Any]
"""A keyword, the Python types of the values that it is about, and its argument."""
