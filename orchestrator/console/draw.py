"""HTML of shown values. What comes from outside passes `format_html`; nothing here is marked safe
that was not escaped before."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import Model
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from orchestrator.console import addresses
from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.shown.values import (
    At,
    Coded,
    Due,
    Fact,
    Happening,
    Json,
    Link,
    Links,
    Prose,
    Search,
    State,
    Value,
)

TEXT_MAX = 100_000
LINE_MAX = 5_000
"""Of the value of a fact."""


def facts(shown: Iterable[Fact], *, seen_by: Principal) -> list[tuple[str, Any]]:
    """Names with their drawn values. What would lead to a page that is not for the user is text."""
    return [(name, value(each, seen_by=seen_by)) for name, each in shown]


def value(shown: Value, *, seen_by: Principal | None = None) -> Any:
    """The value of a fact. With `seen_by`, links lead only to what this person may see."""
    match shown:
        case State(name, kinds):
            return badge(name, words.kind_of(name) if kinds is None else kinds.get(name, ""))
        case At(at, note):
            return format_html('{} <span class="quiet">{}</span>', moment(at), note)
        case Due(at, now, note):
            return format_html("{} {}", moment(at), note or _left(at, now))
        case Link(row, text, note):
            drawn = link(row, text, seen_by=seen_by)
            return format_html('{} <span class="quiet">{}</span>', drawn, note)
        case Links(rows):
            drawn_rows = ((link(each.row, each.text, seen_by=seen_by),) for each in rows)
            return format_html_join(", ", "{}", drawn_rows)
        case Json(content):
            return json(content)
        case Coded(sentence, code):
            return format_html("{} <code>{}</code>", sentence, code)
        case Prose(text):
            # the only tag is ours, and comes after the escaping
            return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))  # noqa: S308
        case Search(_, text) | str(text):
            return visible(text) if len(text) <= LINE_MAX else f"{visible(text[:LINE_MAX])}…"
    return shown


def badge(text: str, kind: str = "") -> SafeString:
    """A state in its colour."""
    return format_html('<span class="badge {}">{}</span>', kind or "plain", text)


def moment(at: datetime) -> SafeString:
    """A point in time, in the time of the installation."""
    local = timezone.localtime(at)
    return format_html(
        '<time datetime="{}">{}</time>', local.isoformat(), f"{local:%Y-%m-%d %H:%M:%S %Z}"
    )


def link(row: Model, text: str, *, seen_by: Principal | None = None) -> SafeString | str:
    """A link to the row's page here, or else in the admin. With `seen_by`, only the text if that
    page is not for this person."""
    if seen_by is not None and not addresses.may_open(row, seen_by):
        return text
    return format_html('<a href="{}">{}</a>', addresses.of(row), text)


def _left(at: datetime, now: datetime) -> SafeString:
    text, is_overdue = words.due(at, now)
    return format_html('<span class="{}">{}</span>', "late" if is_overdue else "quiet", text)


def json(content: Any) -> str:
    """JSON as text, cut where it gets too long for a page; empty for none."""
    if content is None:
        return ""
    text = visible(json_module.dumps(content, indent=2, ensure_ascii=False, default=str))
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n… cut here"


def line(happening: Happening) -> dict[str, Any]:
    """A line of a timeline."""
    return {
        "at": timezone.localtime(happening.at),
        "after": words.span(happening.after_seconds),
        "event": happening.event,
        "state": badge(happening.to, words.kind_of(happening.to)),
        "actor": happening.actor,
        "attempt": happening.attempt,
        "why": value(happening.why or happening.reason),
    }


UNSEEN = {
    # the pictures of control characters; a line's end and a tab stay what they are
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    # what changes the direction of the text around it
    **{code: f"<U+{code:04X}>" for code in (0x061C, 0x200E, 0x200F)},
    **{code: f"<U+{code:04X}>" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


def visible(text: str) -> str:
    """Text in which characters are shown that would change how it is read: of terminals, and of
    the direction of writing."""
    return printable(text.replace("\r\n", "\n")).translate(UNSEEN)


def printable(text: Any) -> str:
    """Text that every encoder accepts: JSON may contain half a surrogate pair, a page may not."""
    return str(text).encode("utf-8", "backslashreplace").decode()
