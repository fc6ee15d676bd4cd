"""Types of the commands' arguments, each with an error that says what was expected."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.core import selectors


def user() -> str:
    """Who types: the actor of whatever a command does."""
    try:
        return f"cli:{getpass.getuser()}"[:150]
    except (KeyError, OSError):  # a container's user need not have a name
        return "cli"


def pair(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`; the value is JSON where it can be read as such, and text otherwise."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ArgumentTypeError(f"expected KEY=VALUE, found {text!r}")
    try:
        return key, _json(value)
    except (ValueError, RecursionError):
        return key, value


def label(text: str) -> tuple[str, str]:
    """`KEY=VALUE`, of which both are text."""
    key, separator, value = text.partition("=")
    if found := selectors.problems({key: value}):
        raise ArgumentTypeError(f"expected KEY=VALUE, found {text!r}: {found[0][1]}")
    if not separator:
        raise ArgumentTypeError(f"expected KEY=VALUE, found {text!r}")
    return key, value


def json_object(option: str) -> Callable[[str], dict[str, Any]]:
    """A JSON object, or `@FILE` that holds one."""

    def read(text: str) -> dict[str, Any]:
        found = _json_argument(option, text, "a JSON object")
        if not isinstance(found, dict):
            where, kind = text[1:] if text.startswith("@") else option, type(found).__name__
            raise ArgumentTypeError(f"{where}: expected a JSON object, found a {kind}")
        return found

    return read


def json_value(option: str) -> Callable[[str], Any]:
    """Any JSON, or `@FILE` that holds it."""
    return lambda text: _json_argument(option, text, "JSON")


def template_ref(*, parts: int) -> Callable[[str], list[str]]:
    """`NAMESPACE/NAME/VERSION`, of which the first so many parts are needed."""

    def read(text: str) -> list[str]:
        found = text.split("/")
        if not parts <= len(found) <= 3 or not all(found):
            raise ArgumentTypeError(f"expected NAMESPACE/NAME/VERSION, found {text!r}")
        return found

    return read


def _json_argument(option: str, text: str, expected: str) -> Any:
    where = option
    try:
        if text.startswith("@"):
            where = text[1:]
            text = Path(where).read_text(encoding="utf-8")
        return _json(text)
    except OSError as error:
        raise ArgumentTypeError(f"{where}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"{where}: expected {expected}: {error}") from None


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number between these."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ArgumentTypeError(f"expected {least} to {most}, found {text!r}")
        return number

    return read


def seconds(most: float) -> Callable[[str], float]:
    """A duration of a millisecond at least."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = 0
        if not 0.001 <= number <= most:
            raise ArgumentTypeError(f"expected seconds, 0.001 to {most:g}, found {text!r}")
        return number

    return read


def text(most: int) -> Callable[[str], str]:
    """Printable text, not empty, of so many characters at most."""

    def read(found: str) -> str:
        if not (0 < len(found) <= most and found.isprintable()):
            raise ArgumentTypeError(f"expected 1 to {most} printable characters, found {found!r}")
        return found

    return read


def _json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)
