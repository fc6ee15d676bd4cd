"""Output of commands: tables, one JSON document, errors of one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, NoReturn

from django.core.management.base import CommandError, CommandParser
from django.db import Error as DatabaseError
from django.db import connection
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from orchestrator.core import authority, checks, cursors, words
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Forbidden, MusterError
from orchestrator.core.management.parsing import ParsedCommand
from orchestrator.core.management.tables import Table
from orchestrator.core.shown.values import (
    At,
    Coded,
    Due,
    Happening,
    Json,
    Link,
    Links,
    Prose,
    Search,
    State,
    Value,
)
from orchestrator.core.words import Kind

UNLIMITED = 100_000
"""Columns of what is no terminal: whatever reads it cuts its lines up, not we."""

CUT_AT = 200
"""The most characters of a message in a list; its page has all of it."""

YEAR = len("2026-")
INTERRUPTED = 130
"""The exit status that a shell reports after Ctrl-C."""

STYLES: Mapping[Kind, str] = {
    Kind.PLAIN: "",
    Kind.INFO: "cyan",
    Kind.PRIMARY: "blue",
    Kind.SUCCESS: "green",
    Kind.WARNING: "yellow",
    Kind.DANGER: "red",
}


NOBODY = ""
"""Instead of a permission: the verb acts for nobody. It starts a service, or looks at no row."""


class MusterCommand(ParsedCommand):
    """A command whose expected errors are one line on stderr and exit status 1.

    Whoever runs it is asked for the permission of its verb, by the same authorizer as the callers
    of the API.
    """

    requires_system_checks: tuple[str, ...] = (checks.CONFIGURATION,)
    permissions: ClassVar[Mapping[str, str]] = {}
    """The permission that each verb needs, or NOBODY; by "" if the command has no verbs. A verb
    that is not here is refused."""
    principal: Principal
    """Whoever runs the command."""
    permission: str
    """The permission that the verb needs."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            with authority.watched(_about(options)):
                self._authorize(options.get("verb") or "")
                said = super().execute(*args, **options)
                self.stdout.flush()
                return said
        except BrokenPipeError:
            # whoever read it is gone; the interpreter writes what is left when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except MusterError as error:
            raise CommandError(str(plain(error))) from None
        except DatabaseError as error:
            raise CommandError(_about_database(error)) from None
        except KeyboardInterrupt:
            self.stderr.write("")
            raise SystemExit(INTERRUPTED) from None

    def _authorize(self, verb: str) -> None:
        if verb not in self.permissions:
            raise Forbidden("No permission is declared for this command, so nobody has it")
        self.permission = self.permissions[verb]
        if self.permission != NOBODY:
            self.principal = authority.at_terminal()
            authority.require(self.principal, self.permission)

    def visible(self, rows: Any) -> Any:
        """Those of the rows for which whoever runs the command has the verb's permission."""
        return rows.visible_to(self.principal, self.permission)

    def show(self, *renderables: RenderableType) -> None:
        """Write tables and texts to stdout: coloured and in its width if it is a terminal."""
        console = Console(file=self.stdout, highlight=False)  # type: ignore[arg-type]
        if not console.is_terminal:
            console.width = UNLIMITED
        for renderable in renderables:
            # scripts may cut up lines of text, so they are not wrapped; tables fit by themselves
            console.print(renderable, soft_wrap=isinstance(renderable, Text | Table))

    def say(self, line: str) -> None:
        """Write a line, which may quote what is stored."""
        self.stdout.write(str(plain(line)))

    def show_json(self, document: Any) -> None:
        """Write one JSON document to stdout."""
        self.stdout.write(json.dumps(document, indent=2, default=_plain))

    def show_items(self, items: Iterable[Any], *, next_cursor: str | None = None) -> None:
        """Write a list, in the shape of all lists; without a cursor it is the last page."""
        self.show_json({"items": list(items), "next_cursor": next_cursor})

    def lead_on(self, cursor: str | None, *, found: bool = True, looked_at: str = "") -> None:
        """Say how to see the next page of a list, if there is one. `found`: whether this one has
        rows. `looked_at`: what was looked at, if that was not all."""
        if cursor is None:
            return
        if not found:
            looked_at = looked_at or f"Looked at {cursors.LOOKED_AT_LIMIT:,}."
        what = f"{looked_at} Older ones" if looked_at else "More"
        self.stdout.write(f"{what}: --cursor {cursor}")

    def fail(self, message: str) -> NoReturn:
        raise CommandError(message)


NAMING = ("action_ref", "gives", "id", "identity", "ids", "name", "names", "path", "step", "task",
          "worker")  # fmt: skip
"""The arguments that name what a command acts on. Others may hold secrets."""


def _about(options: Mapping[str, Any]) -> str:
    """The things that a command was asked to act on, in words."""
    named = (options.get(name) for name in NAMING)
    values = [value if isinstance(value, list | tuple) else [value] for value in named if value]
    return " ".join(str(each) for value in values for each in value)


def add_json(parser: CommandParser) -> None:
    """Add `--json`, which every listing has."""
    parser.add_argument(
        "--json", action="store_true", dest="as_json", help="Print one JSON document."
    )


def facts(pairs: Iterable[tuple[str, Value | RenderableType]]) -> Grid:
    """Names and values below each other; empty values are left out."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, ""):
            grid.add_row(name, rendered(value))
    return grid


def rendered(value: Value | RenderableType) -> RenderableType:
    """Render the value of a fact."""
    match value:
        case State(name, kinds):
            return status(name, kinds)
        case At(at, note):
            return plain(f"{moment(at)} UTC  {note}")
        case Due(at, now, note):
            left = Text(note, style="bright_black") if note else due(at, now)
            return Text(f"{moment(at)} UTC  ") + left
        case Link(_, text, note):
            return plain(f"{text} {note}".strip())
        case Links(rows):
            return plain(", ".join(each.text for each in rows))
        case Json(content):
            return pretty(content)
        case Search(_, text) | Prose(text):
            return plain(text)
        case Coded(sentence, code):
            return plain(f"{sentence} ({code})")
        case str() | int():
            return plain(value)
        case None:
            return ""
    return value


def timeline(happenings: Sequence[Happening]) -> Table:
    """A table of transitions, oldest first, with the time between or, of several rows, the row."""
    of_several = len({each.subject for each in happenings}) > 1
    has_attempts = any(each.attempt is not None for each in happenings)
    headings = ["at", "of" if of_several else ">after", "event", "to"]
    lines = Table(*headings, *([">try"] if has_attempts else []), "*by", "*reason")
    for each in happenings:
        after = words.span(each.after_seconds) if each.after_seconds else ""
        lines.add_row(
            moment(each.at, precise=True)[YEAR:],
            plain(each.subject) if of_several else after,
            plain(each.event),
            status(each.to),
            *([str(each.attempt or "")] if has_attempts else []),
            plain(each.actor),
            plain(each.reason),
        )
    return lines


def status(text: str, kinds: Mapping[str, Kind] | None = None) -> Text:
    """A state in its colour; `kinds` is needed if several apps have one of this name."""
    kind = words.kind_of(text) if kinds is None else kinds.get(text, Kind.PLAIN)
    return Text(text, style=STYLES[kind])


def plain(text: Any) -> Text:
    """Text from outside, without markup and control characters."""
    shown = str(text).encode("utf-8", "backslashreplace").decode()
    return Text("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in shown))


def line(text: Any) -> Text:
    """Text from outside as one line, cut off where a list would lose its shape."""
    one = " ".join(str(text).split())
    return plain(one if len(one) <= CUT_AT else one[: CUT_AT - 1] + "…")


def moment(at: datetime | None, *, precise: bool = False) -> str:
    """`2026-03-01 12:00:00`, in UTC; with milliseconds if `precise`."""
    if at is None:
        return ""
    utc = at.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}" + (f".{utc.microsecond // 1000:03d}" if precise else "")


def due(at: datetime, now: datetime) -> Text:
    """`in 12 s`, or `3 s overdue` in red."""
    text, is_overdue = words.due(at, now)
    return Text(text, style="red" if is_overdue else "")


def pretty(value: Any) -> Text:
    """Indented JSON, for people."""
    return plain(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def described(row: Any, names: Sequence[str]) -> dict[str, Any]:
    """The named attributes of a row, for a JSON document."""
    return {name: getattr(row, name) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _about_database(error: DatabaseError) -> str:
    where = connection.settings_dict
    place = ":".join(str(where[key]) for key in ("HOST", "PORT", "NAME") if where.get(key))
    lines = str(error).strip().splitlines() or [repr(error)]
    message = f"Database {connection.vendor} {place}: {lines[0]}"
    if "no such table" in message or "does not exist" in message:
        message += " (run: manage.py migrate)"
    return message
