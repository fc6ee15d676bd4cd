"""Types of the commands' arguments; the error of each names what was expected."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import selectors
from orchestrator.core.investigations import GIVEN_NAME_MAX

PAGE_MAX = 1_000


def user() -> str:
    """The user at the terminal: the actor of a command."""
    try:
        return f"cli:{getpass.getuser()}"[:150]
    except (KeyError, OSError):  # the user of a container may have no name
        return "cli"


def add_limit(parser: CommandParser, default: int, most: int = PAGE_MAX) -> None:
    """Add `--limit`: the most rows to show."""
    parser.add_argument("--limit", type=whole(1, most), default=default, metavar="N")


def add_page(parser: CommandParser, default: int = 50) -> None:
    """Add `--limit` and `--cursor`: one page of a long list."""
    add_limit(parser, default)
    parser.add_argument("--cursor", help="The cursor that the previous page printed.")


def add_given_name(parser: CommandParser, option: str) -> None:
    """Add an option that names the person on whose behalf the user of the command acts."""
    parser.add_argument(
        option,
        type=text(GIVEN_NAME_MAX),
        metavar="NAME",
        help="Kept as the name on whose behalf it happens. The actor is you.",
    )


def add_choices(parser: CommandParser, option: str, choices: Iterable[str]) -> None:
    """Add an option that may be repeated; rows match that have any of its values."""
    names = [str(each) for each in choices]
    parser.add_argument(
        option,
        action="append",
        default=[],
        choices=names,
        metavar=option.removeprefix("--").upper(),
        help=f"Any of these; may be repeated: {', '.join(names)}.",
    )


def add_pairs(parser: CommandParser, option: str, help: str) -> None:
    """Add `--option KEY=VALUE`, which may be repeated; each value is JSON or text."""
    parser.add_argument(
        option, action="append", default=[], type=pair, metavar="KEY=VALUE", help=help
    )


def pair(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`; the value is JSON if it parses as JSON, otherwise text."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ArgumentTypeError(f"expected KEY=VALUE, found {text!r}")
    try:
        return key, _json(value)
    except (ValueError, RecursionError):
        return key, value


def label(text: str) -> tuple[str, str]:
    """`KEY=VALUE`, both text."""
    key, separator, value = text.partition("=")
    if problems := selectors.problems({key: value}):
        raise ArgumentTypeError(f"expected KEY=VALUE, found {text!r}: {problems[0][1]}")
    if not separator:
        raise ArgumentTypeError(f"expected KEY=VALUE, found {text!r}")
    return key, value


def json_object(text: str) -> dict[str, Any]:
    """A JSON object, or `@FILE` that contains one."""
    value = _json_argument(text, "a JSON object")
    if not isinstance(value, dict):
        where = f"{text[1:]}: " if text.startswith("@") else ""
        found = type(value).__name__
        raise ArgumentTypeError(f"{where}expected a JSON object, found a {found}")
    return value


def json_value(text: str) -> Any:
    """Any JSON, or `@FILE` that contains it."""
    return _json_argument(text, "JSON")


def template_ref(*, parts: int) -> Callable[[str], list[str]]:
    """`NAMESPACE/NAME/VERSION`, of which the first `parts` are required."""

    def read(text: str) -> list[str]:
        names = text.split("/")
        if not parts <= len(names) <= 3 or not all(names):
            raise ArgumentTypeError(f"expected NAMESPACE/NAME/VERSION, found {text!r}")
        return names

    return read


def _json_argument(text: str, expected: str) -> Any:
    """The parser of the arguments says which option it is of."""
    where = ""
    try:
        if text.startswith("@"):
            where = f"{text[1:]}: "
            text = Path(text[1:]).read_text(encoding="utf-8")
        return _json(text)
    except OSError as error:
        raise ArgumentTypeError(f"{where}{error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"{where}expected {expected}: {error}") from None


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

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
    """A duration in seconds, at least a millisecond."""

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
    """Printable text, not empty, of at most `most` characters."""

    def read(value: str) -> str:
        if not (0 < len(value) <= most and value.isprintable()):
            raise ArgumentTypeError(f"expected 1 to {most} printable characters, found {value!r}")
        return value

    return read


def moment(text: str) -> datetime:
    """A date or a time; UTC if it names no time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a time such as 2030-01-31, found {text!r}") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)
