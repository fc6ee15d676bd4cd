"""Validation of JSON against what PostgreSQL and SQLite can store."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeGuard

from orchestrator.core.errors import MusterError

DEPTH_LIMIT = 50
"""No action needs deeper JSON; it would only be an attempt to overflow a parser's stack."""

LONGEST_NUMBER = 4_300
"""Digits of a whole number that Python reads: more would take it long."""

MOST_TABLES = 20
"""The most tables in tables that are kept of a header."""

TOO_DEEP = f"is nested more than {DEPTH_LIMIT} levels deep"


class Malformed(MusterError):
    """The text is not JSON."""


class Unreadable(MusterError):
    """The text looks like JSON, and has a value that nobody can read."""

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(message)
        self.place = place
        """The JSON pointer of the value, if it is known."""


def read(body: bytes, *, has_unique_names: bool = False) -> Any:
    """Read JSON, of which Python's own parser reads more than there is. What it returns may still
    have `faults`. Raises Malformed and Unreadable.

    `has_unique_names`: of an object that has a name twice, nobody knows which of both was meant.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            object_pairs_hook=_with_unique_names if has_unique_names else None,
        )
    except json.JSONDecodeError as error:
        raise Malformed(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise Unreadable(TOO_DEEP) from None
    except ValueError:
        raise _too_long(text) from None


def _refuse_constant(name: str) -> NoReturn:
    raise Unreadable(f"{name} is not a JSON number")


def _with_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise Unreadable(f"expected each name once in an object, found {twice[:100]!r} again")
    return value


class _Long(str):
    """The digits of a whole number that Python does not read."""


def _too_long(text: str) -> Unreadable:
    """The refusal of a text with a whole number of thousands of digits."""
    expected = f"expected a number of at most {LONGEST_NUMBER:,} digits"
    try:
        read = json.loads(text, parse_int=_Long)
    except (ValueError, RecursionError):  # what follows the number has faults of its own
        return Unreadable(f"{expected}, found a longer one")
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(read, ())]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, _Long) and len(value.lstrip("-")) > LONGEST_NUMBER:
            found = f"found {len(value.lstrip('-')):,}"
            return Unreadable(f"{expected}, {found}", place=pointer(path))
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(item, (*path, key)) for key, item in items]
    return Unreadable(f"{expected}, found a longer one")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return True for a number; true and false are none, whatever Python says."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Return True for a whole number; 1.0 is none, nor are true and false."""
    return isinstance(value, int) and not isinstance(value, bool)


def faults(value: Any) -> Iterator[tuple[str, str]]:
    """Find everything that PostgreSQL's jsonb cannot store, as pairs of JSON pointer and message.

    Not JSON: NaN, Infinity. Not storable: NUL characters, lone surrogates (PostgreSQL manual, 8.14
    "JSON Types"). Not recursive: the caller controls the depth.
    """
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, str):
            if fault := text_fault(value):
                yield pointer(path), f"contains {fault}"
        elif isinstance(value, float):
            if not math.isfinite(value):
                yield pointer(path), "is beyond a double's range"
        elif isinstance(value, dict | list | tuple):
            if len(path) >= DEPTH_LIMIT:
                yield pointer(path), TOO_DEEP
                continue
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                if isinstance(key, str) and (fault := text_fault(key)):
                    yield pointer(path), f"a name contains {fault}"
                else:
                    waiting.append((item, (*path, key)))


def text_fault(text: str) -> str | None:
    """Describe the part of this text that no database can store, or return None."""
    if "\0" in text:
        return "a NUL character, which PostgreSQL cannot store"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "half of a surrogate pair, which is not Unicode text"
    return None


def text_problem(text: str, longest: int, *, least: int = 1) -> str:
    """The reason why a column of so many characters cannot hold this text; empty if it can."""
    if not least <= len(text) <= longest:
        expected = f"{least} to {longest}" if least else f"at most {longest}"
        return f"expected {expected} characters, found {len(text)}"
    fault = text_fault(text)
    return f"contains {fault}" if fault else ""


def pointer(path: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def at(value: Any, path: Sequence[str]) -> Any:
    """The value at a path of names of objects and numbers of elements; None if there is none."""
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def storable(value: Any, depth: int = 0) -> Any:
    """Convert AMQP's headers to JSON that every database can store: no bytes, dates, NUL or foreign
    types.

    Integers, text and truth values, which are nearly all that headers hold, stay as they are.
    """
    if depth > MOST_TABLES:
        return "..."
    if isinstance(value, Mapping):
        return {str(storable(key)): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, depth + 1) for item in value]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "replace")
    # text that came over AMQP must not grow: most of it may have 255 bytes there
    return str(value).replace("\x00", "?").encode("utf-8", "replace").decode()
