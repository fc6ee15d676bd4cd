"""How commands speak: tables of at most 100 columns, one JSON document, errors of one line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError
from django.db import connection
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core import checks, words
from orchestrator.core.errors import MusterError
from orchestrator.core.shown.values import (
    At,
    Coded,
    Due,
    Happening,
    Link,
    Prose,
    Search,
    State,
    Value,
)
from orchestrator.core.words import Kind

COLUMNS = 100
INTERRUPTED = 130
"""What a shell reports of a program that was stopped by Ctrl-C."""

STYLES: Mapping[Kind, str] = {
    Kind.PLAIN: "",
    Kind.INFO: "cyan",
    Kind.PRIMARY: "blue",
    Kind.SUCCESS: "green",
    Kind.WARNING: "yellow",
    Kind.DANGER: "red",
}


class MusterCommand(BaseCommand):
    """A command whose expected errors are one line on stderr and exit status 1."""

    requires_system_checks: tuple[str, ...] = (checks.CONFIGURATION,)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except MusterError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(_about_database(error)) from None
        except KeyboardInterrupt:
            self.stderr.write("")
            raise SystemExit(INTERRUPTED) from None

    def show(self, *renderables: RenderableType) -> None:
        """Write tables and texts to stdout, coloured where that is a terminal."""
        console = Console(file=self.stdout, highlight=False)  # type: ignore[arg-type]
        console.width = min(console.width, COLUMNS) if console.is_terminal else COLUMNS
        for renderable in renderables:
            # a line of text is what a script may cut up: it is not wrapped
            console.print(renderable, soft_wrap=isinstance(renderable, Text))

    def show_json(self, document: Any) -> None:
        """Write one JSON document to stdout."""
        self.stdout.write(json.dumps(document, indent=2, default=_plain))

    def fail(self, message: str) -> NoReturn:
        raise CommandError(message)


def add_json(parser: CommandParser) -> None:
    """The option that every listing has."""
    parser.add_argument(
        "--json", action="store_true", dest="as_json", help="Print one JSON document."
    )


def table(*headings: str, title: str = "") -> Table:
    """A table; `>` before a heading sets its column to the right, `*` lets it be folded."""
    made = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        made.add_column(
            heading.lstrip(">*"),
            justify="right" if heading.startswith(">") else "left",
            overflow="fold",
            no_wrap=not heading.startswith("*"),
        )
    return made


def facts(pairs: Iterable[tuple[str, Value | RenderableType]]) -> Table:
    """Names and values below each other; what is empty is left out."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="bright_black", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, ""):
            made.add_row(name, said(value))
    return made


def said(value: Value | RenderableType) -> RenderableType:
    """What a fact says."""
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
    """What happened, oldest first."""
    made = table("at", ">after", "what", ">try", "*by", "*reason")
    for each in happenings:
        made.add_row(
            moment(each.at, precise=True),
            words.span(each.after_seconds) if each.after_seconds else "",
            status(each.to),
            "" if each.attempt is None else str(each.attempt),
            plain(each.actor),
            plain(each.reason),
        )
    return made


def status(text: str, kinds: Mapping[str, Kind] | None = None) -> Text:
    """A state in its colour; `kinds` where several apps have one of this name."""
    kind = words.kind_of(text) if kinds is None else kinds.get(text, Kind.PLAIN)
    return Text(text, style=STYLES[kind])


def plain(text: Any) -> Text:
    """Text from outside, of which nothing is markup."""
    shown = str(text).encode("utf-8", "backslashreplace").decode()
    return Text("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in shown))


def moment(at: datetime | None, *, precise: bool = False) -> str:
    """`2026-03-01 12:00:00`, in UTC; with milliseconds where they tell something."""
    if at is None:
        return ""
    utc = at.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}" + (f".{utc.microsecond // 1000:03d}" if precise else "")


def due(at: datetime, now: datetime) -> Text:
    """`in 12 s`, or `3 s overdue` in red."""
    text, is_overdue = words.due(at, now)
    return Text(text, style="red" if is_overdue else "")


def pretty(value: Any) -> Text:
    """JSON to read."""
    return plain(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def described(row: Any, names: Sequence[str]) -> dict[str, Any]:
    """These attributes of a row, for a JSON document."""
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
