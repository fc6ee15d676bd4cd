"""The values that expressions make: those of JSON, references to keys, and the budget that pays for
both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jinja2 import Undefined

from orchestrator.core import key_references
from orchestrator.core.errors import MusterError

OUTPUT_LIMIT = 262_144
"""Characters, or items, of any intermediate value of an expression."""
RENDERED_LIMIT = 1_048_576
"""Characters and items of all values that one step or rule is given."""
CPU_LIMIT_SECONDS = 5.0
"""Processor time of all expressions of one step or rule: each is cheap, but there may be many."""
NUMBER_LIMIT = 2**63
"""No workflow needs larger whole numbers; they would only be an attempt to use up memory."""


class InvalidExpression(MusterError):
    """The expression is not valid."""


class CannotEvaluate(MusterError):
    """The expression has no value with the data that there is."""


class KeyReference(str):
    """The value of `keys.billing.stripe`: the text `billing/stripe`, and no plain text."""

    __slots__ = ()

    def __str__(self) -> KeyReference:
        return self  # it stays what it is where a text is put together

    @property
    def plain(self) -> dict[str, str]:
        """As parameters have it."""
        return {key_references.KEY: str.__str__(self)}


class Keys:
    """`keys`, or with an owner `keys.billing`."""

    def __init__(self, owner: str = "") -> None:
        self.owner = owner

    def member(self, name: str) -> Keys | KeyReference:
        return KeyReference(f"{self.owner}/{name}") if self.owner else Keys(name)


KEYS = {"keys": Keys()}


class Budget:
    """The characters and items that one step or rule may still make, and its processor time."""

    def __init__(self, *, limit: int = RENDERED_LIMIT, seconds: float = CPU_LIMIT_SECONDS) -> None:
        self.limit = limit
        self.seconds = seconds
        self.spent = 0
        self.until = time.thread_time() + seconds
        self.measured: dict[int, tuple[Any, int]] = {}
        """Values that were passed on, by their identity, with their sizes."""

    def spend(self, size: int) -> None:
        """Charge for a value that is about to be made. Raises CannotEvaluate."""
        self.spent += size
        if self.spent > self.limit:
            raise CannotEvaluate(
                f"the values together make more than {self.limit:,} characters and items"
                if self.limit == RENDERED_LIMIT
                else f"it makes more than {self.limit:,} characters and items"
            )

    def plain(self, value: Any) -> Any:
        """The value as JSON, charged for. One that is passed on again is not measured again."""
        if known := self.measured.get(id(value)):
            self.spend(known[1])
            return value
        before = self.spent
        made = plain(value, self)
        if made is value:
            # kept, so that no other value takes its identity
            self.measured[id(value)] = value, self.spent - before
        return made

    @property
    def is_late(self) -> bool:
        """True if the processor time is used up."""
        return time.thread_time() > self.until

    def check_time(self) -> None:
        """Raise CannotEvaluate if the processor time is used up."""
        if self.is_late:
            raise CannotEvaluate(
                f"the expressions take more than {self.seconds:g} s of processor time"
            )


def limited(value: Any) -> Any:
    if isinstance(value, str | list | tuple | dict) and len(value) > OUTPUT_LIMIT:
        raise CannotEvaluate(f"it makes more than {OUTPUT_LIMIT:,} characters or items")
    if isinstance(value, int) and abs(value) > NUMBER_LIMIT:
        raise CannotEvaluate("it makes a number of more than 64 bits")
    return value


def plain(value: Any, budget: Budget) -> Any:
    """Convert to JSON's types, charging for each value before it is made. What is JSON already is
    not copied.

    Raises CannotEvaluate, and UndefinedError for a missing name.
    """
    if isinstance(value, KeyReference):
        budget.spend(len(value) + 1)
        return value.plain
    if isinstance(value, str):
        budget.spend(len(value) + 1)
        return str(value)
    if isinstance(value, Mapping):
        return plain_mapping(value, lambda item: plain(item, budget), budget)
    if isinstance(value, list | tuple | Iterator):
        return plain_list(value, lambda item: plain(item, budget), budget)
    budget.spend(1)
    if value is None or isinstance(value, bool | int):
        return limited(value)
    if isinstance(value, Undefined):
        str(value)  # raises, and names what is missing
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CannotEvaluate("it makes no finite number")
        return value
    raise CannotEvaluate(f"it makes a {type(value).__name__}, which is no data")


def plain_mapping(
    value: Mapping[Any, Any], convert: Callable[[Any], Any], budget: Budget
) -> Mapping[str, Any]:
    """The mapping with its items converted: itself if that changes none of them."""
    budget.spend(1)
    changed: dict[Any, Any] | None = None if type(value) is dict else {}
    for number, (key, item) in enumerate(value.items()):
        name = str(key)
        if name in (key_references.KEY, key_references.TEXT):
            raise CannotEvaluate(f"its data has {name} in it: only a template refers to keys")
        budget.spend(len(name) + 1)
        converted = convert(item)
        if changed is None and (converted is not item or name is not key):
            changed = dict(islice(value.items(), number))
        if changed is not None:
            changed[name] = converted
    return value if changed is None else changed


def plain_list(
    values: Iterable[Any], convert: Callable[[Any], Any], budget: Budget
) -> Iterable[Any]:
    """The same for a list; whatever else has items becomes one."""
    budget.spend(1)
    changed: list[Any] | None = None if type(values) is list else []
    for number, item in enumerate(values):
        converted = convert(item)
        if changed is None and converted is not item:
            changed = list(islice(values, number))
        if changed is not None:
            changed.append(converted)
    return values if changed is None else changed
