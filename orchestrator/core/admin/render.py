"""HTML of the admin's pages: moments with their timezone, durations, badges, JSON, bytes.

All input from outside goes through `format_html`; nothing here marks input as safe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Model, QuerySet
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator

from orchestrator.core import words
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

Row = TypeVar("Row", bound=Model)

TEXT_LIMIT_CHARACTERS = 100_000
HISTORY_LIMIT = 200
MESSAGE_CHARACTERS = 300
SHOWN_LINES = 20
"""More of them may scroll in their box."""
AT_ONCE_SECONDS = 0.002
EMPTY_HEAD = mark_safe("<td></td>")


def badge(text: str, kind: str = "") -> SafeString:
    """A coloured label; `kind` is success, info, primary, warning, danger or nothing."""
    return format_html('<span class="m-badge m-badge-{}">{}</span>', kind or "plain", text)


def state_badge(state: str) -> SafeString:
    """A state of any app in its colour."""
    return badge(state, words.kind_of(state))


def moment(at: datetime | None, *, precise: bool = False) -> SafeString | None:
    """A point in time with its timezone, to the second or millisecond; in full as a tooltip."""
    if at is None:
        return None
    local = timezone.localtime(at)
    milliseconds = f".{local.microsecond // 1000:03d}" if precise else ""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        local.isoformat(),
        f"{local:%Y-%m-%d %H:%M:%S}{milliseconds} {local.tzname()}",
    )


def since(at: datetime | None, now: datetime) -> SafeString | None:
    """`12 s ago`, with the moment as a tooltip."""
    if at is None:
        return None
    local = timezone.localtime(at)
    return format_html(
        '<time datetime="{}" title="{}">{} ago</time>',
        local.isoformat(),
        f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}",
        words.span((now - at).total_seconds()),
    )


def due(at: datetime, now: datetime) -> SafeString:
    """`in 12 s`, or `3 s overdue` in red."""
    text, is_overdue = words.due(at, now)
    if is_overdue:
        return format_html('<strong class="m-overdue">{}</strong>', text)
    return format_html('<span class="m-muted">{}</span>', text)


def facts(shown: Iterable[Fact]) -> list[tuple[str, Any]]:
    """Names with their rendered values."""
    return [(name, rendered(value)) for name, value in shown]


def rendered(value: Value) -> Any:
    """Render the value of a fact."""
    match value:
        case State(name, kinds):
            return state_badge(name) if kinds is None else badge(name, kinds.get(name, ""))
        case At(at, ""):
            return moment(at)
        case At(at, note):
            return format_html('{} · <span class="m-muted">{}</span>', moment(at), note)
        case Due(at, now, note):
            muted = format_html('<span class="m-muted">{}</span>', note)
            return format_html("{} · {}", moment(at), muted if note else due(at, now))
        case Link(row, text, note):
            return format_html("{} {}", link_to(row, text), note)
        case Links(rows):
            return format_html_join(", ", "{}", ((link_to(r.row, r.text),) for r in rows))
        case Json(content):
            return pretty_json(content)
        case Search(model, text):
            return search_link(model, text)
        case Coded(sentence, text):
            return format_html("{} {}", sentence, code(text))
        case Prose(text):
            return with_code(text)
        case str():
            return printable(value)
    return value


def with_code(text: str) -> SafeString:
    """Set the words in `backticks` as code."""
    pattern, replacement = r"`([^`]+)`", r'<code class="m-code">\1</code>'
    return mark_safe(re.sub(pattern, replacement, escape(text)))  # noqa: S308 - escaped before


def timeline(
    rows: QuerySet[Row], happenings: Callable[[list[Row]], list[Happening]], api: str
) -> SafeString:
    """Draw transitions, oldest first; if they are many, the last. `api`: the URL of all of them."""
    newest = list(rows.order_by("-pk")[: HISTORY_LIMIT + 1])
    is_cut = len(newest) > HISTORY_LIMIT
    lines = [
        {
            "line": each,
            "at": moment(each.at, precise=True),
            "elapsed": words.span(each.after_seconds),
            "kind": words.kind_of(each.to),
            "was": state_badge(each.was) if each.was else "",
            "to": state_badge(each.to),
            "why": rendered(each.why or each.reason),
        }
        for each in _without_inner_states(happenings(newest[::-1]))
    ]
    context = {"limit": HISTORY_LIMIT, "api": api if is_cut else ""}
    if is_cut:
        lines = lines[-HISTORY_LIMIT:]
    return render_to_string("orchestrator/admin/timeline.html", context | {"lines": lines})


def _without_inner_states(lines: Iterable[Happening]) -> list[Happening]:
    """Put together what one process did to one row at once: the states between are of no moment."""
    kept: list[Happening] = []
    for line in lines:
        before = kept[-1] if kept else None
        if before and _is_at_once(before, line):
            kept[-1] = replace(
                line,
                event=f"{before.event}, {line.event}",
                was=before.was,
                after_seconds=before.after_seconds,
            )
        else:
            kept.append(line)
    return kept


def _is_at_once(before: Happening, line: Happening) -> bool:
    is_same = bool(line.subject) and line.subject == before.subject and line.actor == before.actor
    follows = line.was == before.to and before.was != ""
    return is_same and follows and not before.reason and line.after_seconds < AT_ONCE_SECONDS


def printable(value: Any) -> str:
    """Text that every encoder accepts: JSON may contain half a surrogate pair, a page may not."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def code(text: Any) -> SafeString:
    return format_html('<code class="m-code">{}</code>', printable(text))


def mono(text: Any) -> SafeString:
    return format_html('<span class="m-id">{}</span>', printable(text))


def short_id(value: UUID) -> SafeString:
    """The millisecond and the last digits of a UUIDv7: unique enough to read, and a prefix to
    search by."""
    text = str(value)
    return format_html('<span class="m-id" title="{}">{}…{}</span>', text, text[:13], text[-4:])


def message(text: Any) -> SafeString | str:
    """The message of somebody or something, in two lines of a list; in full as a tooltip."""
    if not text:
        return "-"
    cut = Truncator(printable(text)).chars(MESSAGE_CHARACTERS)
    return format_html('<span class="m-message" title="{}">{}</span>', cut, cut)


def preformatted(text: str) -> SafeString:
    """Text as it is, wrapped, and cut at `TEXT_LIMIT_CHARACTERS`."""
    text = printable(text)
    if len(text) > TEXT_LIMIT_CHARACTERS:
        more = len(text) - TEXT_LIMIT_CHARACTERS
        text = f"{text[:TEXT_LIMIT_CHARACTERS]}\n… {more:,} more characters"
    # a box that scrolls must be within reach of the keyboard
    reach = mark_safe(' tabindex="0"') if text.count("\n") > SHOWN_LINES else ""
    return format_html('<pre class="m-pre"{}>{}</pre>', reach, text)


def pretty_json(value: Any) -> SafeString:
    return preformatted(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def result_json(result: Any) -> SafeString:
    """A result as JSON, then its texts of several lines (output, tracebacks) as plain text."""
    blocks = [pretty_json(result)]
    if isinstance(result, dict):
        for key, text in result.items():
            if isinstance(text, str) and "\n" in text.strip():
                heading = format_html('<h3 class="m-subtitle">{}</h3>', printable(key))
                blocks += [heading, preformatted(text)]
    return format_html_join("", "{}", ((block,) for block in blocks))


def hex_dump(body: bytes) -> SafeString:
    """The first bytes as offset, hexadecimal and ASCII, sixteen per line."""
    return format_html('<pre class="m-pre m-hex">{}</pre>', "\n".join(words.hex_lines(body)))


def link(url: str, text: Any) -> SafeString:
    return format_html(
        '<a class="m-link" href="{}">{}</a>',
        url,
        text,
    )


def link_to(obj: Model | None, text: Any = None) -> SafeString | None:
    """A link to the object's page in the admin."""
    if obj is None:
        return None
    meta = obj._meta
    url = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[obj.pk])
    return link(url, str(obj) if text is None else text)


def search_link(model: type[Model], text: str | None) -> SafeString | None:
    """A link to the list of this model's objects that contain the text."""
    if not text:
        return None
    meta = model._meta
    base = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
    return link(f"{base}?{urlencode({'q': text})}", text)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> SafeString:
    """A table; cells are escaped unless they are safe already, empty cells become a dash."""
    # a header without a text would be one that says nothing to a screen reader
    head = format_html_join(
        "", "{}", ((format_html("<th>{}</th>", each) if each else EMPTY_HEAD,) for each in headers)
    )
    body = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (format_html_join("", "<td>{}</td>", ((or_dash(cell),) for cell in row)),)
            for row in rows
        ),
    )
    return format_html(
        '<div class="m-scroll" tabindex="0"><table class="m-table"><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>",
        head,
        body,
    )


def or_dash(value: Any) -> Any:
    return "-" if value is None or value == "" else value
