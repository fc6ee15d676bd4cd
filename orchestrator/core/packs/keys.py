"""Checks of the keys and values in a pack's files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.core import queue_terms, redaction, spelling
from orchestrator.core.json_values import is_number, is_whole
from orchestrator.core.packs.source import Source, Where

LARGEST_INTEGER = 2_147_483_647
"""The most that an integer column holds."""

LONGEST_TIMEOUT_SECONDS = 7 * 86_400
"""No execution may run longer."""


@dataclass(frozen=True)
class Key:
    """The rule for the value of a key."""

    expected: str
    fits: Callable[[Any], bool]
    required: bool = False
    fault_in: Callable[[Any], Any] = lambda value: value
    """The part of a value that does not fit; by default all of it."""


def check(file: Source, keys: Mapping[str, Key], where: Where = ()) -> bool:
    """Note the unknown, missing and invalid keys of the mapping there; False if there is no
    mapping."""
    value = file.at(where, {})
    prefix = "".join(f"{name}." for name in where)
    if not isinstance(value, dict):
        if where or not file.problems:
            file.problem(where, f"{prefix[:-1]}: " * bool(where) + _no_mapping(value))
        return False
    for name in value:
        if name not in keys:
            near = spelling.near(name, keys)
            hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(keys)}"
            file.problem((*where, name), f"{prefix}{name}: unknown key, {hint}", at_key=True)
    for name, key in keys.items():
        if name not in value:
            if key.required:
                file.problem(where, f"{prefix}{name}: missing key, expected {key.expected}")
        elif not key.fits(value[name]):
            quoted = shown(key.fault_in(value[name]))
            file.problem((*where, name), f"{prefix}{name}: expected {key.expected}, found {quoted}")
    return True


def _no_mapping(value: Any) -> str:
    return f"expected a mapping, found {shown(value)}"


def shown(value: Any) -> str:
    """The value as a problem quotes it."""
    return "nothing" if value is None else redaction.quoted(value)


def is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def is_name(value: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and len(value) <= 60 and bool(pattern.fullmatch(value))


def is_above_zero(value: Any) -> bool:
    return is_number(value) and value > 0


def is_whole_above_zero(value: Any) -> bool:
    return is_whole(value) and is_above_zero(value) and value <= LARGEST_INTEGER


def is_timeout(value: Any) -> bool:
    return is_above_zero(value) and value <= LONGEST_TIMEOUT_SECONDS


def is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def one_of(*choices: str, required: bool = False) -> Key:
    return Key(
        f"one of {', '.join(choices)}",
        lambda value: isinstance(value, str) and value in choices,
        required,
    )


TEXT = Key("text", is_text)
YES_OR_NO = Key("true or false", is_bool)
MAPPING = Key("a mapping", lambda value: isinstance(value, dict))
NUMBER = Key("a number above 0", is_above_zero)
TIMEOUT = Key(f"a number above 0, at most {LONGEST_TIMEOUT_SECONDS:,} (seven days)", is_timeout)
WHOLE_NUMBER = Key("a whole number above 0", is_whole_above_zero)
QUEUE = Key(
    f"the name of a queue, {queue_terms.NAME_EXPECTED}",
    lambda value: isinstance(value, str) and bool(queue_terms.NAME.fullmatch(value)),
)
