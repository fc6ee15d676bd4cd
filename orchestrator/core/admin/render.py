"""How the admin's pages say things: moments with their timezone, durations, badges, JSON, bytes.

Everything that comes from outside goes through `format_html`; nothing here marks input as safe.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Model
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

TEXT_LIMIT_CHARACTERS = 100_000
BODY_LIMIT_BYTES = 4_096
HEX_COLUMNS = 16
# lists have no stylesheet of ours, and Unfold has no class for it
MONO = "font-family: ui-monospace, monospace; font-size: .92em"

STATUS_KINDS = {
    "requested": "",
    "scheduling": "warning",
    "scheduled": "info",
    "running": "primary",
    "canceling": "warning",
    "completed": "success",
    "failed": "danger",
    "timeout": "danger",
    "cancelled": "",
    "abandoned": "danger",
}

TASK_KINDS = {
    "pending": "",
    "initializing": "info",
    "enqueuing_steps": "info",
    "steps_in_process": "primary",
    "evaluating_results": "info",
    "waiting_for_dependencies": "primary",
    "waiting_for_retry": "warning",
    "blocked_by_failures": "danger",
    "complete": "success",
    "error": "danger",
    "cancelled": "",
    "resolved_manually": "success",
}
STEP_KINDS = {
    "pending": "",
    "enqueued": "info",
    "in_progress": "primary",
    "enqueued_for_orchestration": "info",
    "complete": "success",
    "error": "danger",
    "waiting_for_retry": "warning",
    "cancelled": "",
    "resolved_manually": "success",
}
STATE_KINDS = STEP_KINDS | TASK_KINDS


def labels(values: Mapping[str, Any]) -> str:
    """`zone=b, gpu=yes`."""
    return ", ".join(f"{key}={value}" for key, value in values.items())


def badge(text: str, kind: str = "") -> SafeString:
    """A coloured label; `kind` is success, info, primary, warning, danger or nothing."""
    return render_to_string("unfold/helpers/label.html", {"text": text, "type": kind})


def status_badge(status: str) -> SafeString:
    return badge(status, STATUS_KINDS.get(status, ""))


def state_badge(state: str) -> SafeString:
    """Of a task or a step."""
    return badge(state, STATE_KINDS.get(state, ""))


def moment(at: datetime | None, *, precise: bool = False) -> SafeString | None:
    """A point in time with its timezone, to the second or millisecond; all of it when hovered."""
    if at is None:
        return None
    local = timezone.localtime(at)
    milliseconds = f".{local.microsecond // 1000:03d}" if precise else ""
    return format_html(
        '<time class="whitespace-nowrap" datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        local.isoformat(),
        f"{local:%Y-%m-%d %H:%M:%S}{milliseconds} {local.tzname()}",
    )


def span(seconds: float) -> str:
    """A duration in its two largest units: `340 ms`, `12.3 s`, `3 min 12 s`, `2 d 4 h`."""
    seconds = abs(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for size, unit, small_size, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            large, rest = divmod(whole, size)
            small = rest // small_size
            return f"{large} {unit} {small} {small_unit}" if small else f"{large} {unit}"
    return f"{whole} s"


def since(at: datetime | None, now: datetime) -> SafeString | None:
    """`12 s ago`, the moment itself when hovered."""
    if at is None:
        return None
    local = timezone.localtime(at)
    return format_html(
        '<time class="whitespace-nowrap" datetime="{}" title="{}">{} ago</time>',
        local.isoformat(),
        f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}",
        span((now - at).total_seconds()),
    )


def due(at: datetime, now: datetime) -> SafeString:
    """`in 12 s`, or `3 s overdue` in red."""
    left = (at - now).total_seconds()
    if left >= 0:
        return format_html('<span class="m-muted">in {}</span>', span(left))
    return format_html('<strong class="m-overdue">{} overdue</strong>', span(left))


def printable(value: Any) -> str:
    """Text that every encoder takes: JSON may hold half a surrogate pair, a page may not."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def code(text: Any) -> SafeString:
    return format_html('<code class="m-code">{}</code>', printable(text))


def mono(text: Any) -> SafeString:
    return format_html(
        '<span class="whitespace-nowrap" style="{}">{}</span>', MONO, printable(text)
    )


def short_id(value: UUID) -> SafeString:
    """The millisecond and the last digits of a UUIDv7: tells neighbours apart, starts a search."""
    text = str(value)
    return format_html(
        '<span class="whitespace-nowrap" style="{}" title="{}">{}…{}</span>',
        MONO,
        text,
        text[:13],
        text[-4:],
    )


def preformatted(text: str) -> SafeString:
    """Text as it is, wrapped, and cut off where no one reads on."""
    text = printable(text)
    if len(text) > TEXT_LIMIT_CHARACTERS:
        more = len(text) - TEXT_LIMIT_CHARACTERS
        text = f"{text[:TEXT_LIMIT_CHARACTERS]}\n… {more:,} more characters"
    return format_html('<pre class="m-pre">{}</pre>', text)


def pretty_json(value: Any) -> SafeString:
    return preformatted(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def result_json(result: Any) -> SafeString:
    """A result: its JSON, and texts of several lines (output, tracebacks) again as they look."""
    blocks = [pretty_json(result)]
    if isinstance(result, dict):
        for key, text in result.items():
            if isinstance(text, str) and "\n" in text.strip():
                heading = format_html('<h3 class="m-subtitle">{}</h3>', printable(key))
                blocks += [heading, preformatted(text)]
    return format_html_join("", "{}", ((block,) for block in blocks))


def hex_dump(body: bytes) -> SafeString:
    """The first bytes as offset, hexadecimal and ASCII, sixteen a line."""
    lines = []
    for offset in range(0, min(len(body), BODY_LIMIT_BYTES), HEX_COLUMNS):
        row = body[offset : min(offset + HEX_COLUMNS, BODY_LIMIT_BYTES)]
        ascii_text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<{HEX_COLUMNS * 3 - 1}}  {ascii_text}")
    if len(body) > BODY_LIMIT_BYTES:
        lines.append(f"… {len(body) - BODY_LIMIT_BYTES:,} more bytes")
    return format_html('<pre class="m-pre m-hex">{}</pre>', "\n".join(lines))


def link(url: str, text: Any) -> SafeString:
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500 hover:underline" href="{}">{}</a>',
        url,
        text,
    )


def link_to(obj: Model | None, text: Any = None) -> SafeString | None:
    """The object's own page in the admin."""
    if obj is None:
        return None
    meta = obj._meta
    url = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[obj.pk])
    return link(url, str(obj) if text is None else text)


def search_link(model: type[Model], text: str | None) -> SafeString | None:
    """The list of this model's objects in which the text is found."""
    if not text:
        return None
    meta = model._meta
    base = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
    return link(f"{base}?{urlencode({'q': text})}", text)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> SafeString:
    """A table; cells are escaped unless they are safe already, empty ones become a dash."""
    head = format_html_join("", "<th>{}</th>", ((header,) for header in headers))
    body = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (format_html_join("", "<td>{}</td>", ((or_dash(cell),) for cell in row)),)
            for row in rows
        ),
    )
    return format_html(
        '<div class="m-scroll"><table class="m-table"><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>",
        head,
        body,
    )


def or_dash(value: Any) -> Any:
    return "-" if value is None or value == "" else value
