"""The page of one DLQ entry: what happened, who looked, and all that was kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.core import investigations, words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.models import DLQEntry
from orchestrator.core.models.dead_letters import REASON_KINDS, RESOLUTION_KINDS


def sections(obj: DLQEntry, now: datetime) -> list[Section]:
    """The boxes of an entry's page."""
    boxes = [Section(facts=_what_happened(obj, now), kind=RESOLUTION_KINDS.get(_status(obj), ""))]
    if obj.notes:
        rows = [(n.get("at"), n.get("by"), render.printable(n.get("text"))) for n in obj.notes]
        boxes.append(Section(title="Notes", body=render.table(["At", "By", "Note"], rows)))
    if obj.fingerprint:
        boxes += [
            Section(title="Deaths (x-death)", body=x_death_table(obj.x_death)),
            Section(title="Headers", body=render.pretty_json(obj.headers), wide=False),
        ]
    boxes.append(
        Section(
            title="As it was when the entry was opened",
            body=render.pretty_json(obj.snapshot) if obj.snapshot else "belongs to none",
            wide=not obj.fingerprint,
        )
    )
    if obj.metadata:
        boxes.append(Section(title="Metadata", body=render.pretty_json(obj.metadata)))
    if obj.raw_body is not None:
        boxes.append(_body(bytes(obj.raw_body)))
    return boxes


def _status(entry: DLQEntry) -> str:
    return str(entry.resolution_status)


def _what_happened(entry: DLQEntry, now: datetime) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = [
        ("Entry", render.mono(entry.dlq_entry_uuid)),
        ("Reason", render.badge(entry.dlq_reason, REASON_KINDS.get(entry.dlq_reason, ""))),
        ("Resolution", render.badge(_status(entry), RESOLUTION_KINDS.get(_status(entry), ""))),
        ("Detail", render.printable(entry.detail)),
        ("About", subject_link(entry)),
        ("Attempt", entry.attempt),
        ("It was", entry.original_state),
        ("Opened", _by_and_when(entry.opened_by, entry.dlq_timestamp, now)),
    ]
    if entry.occurrences > 1 and entry.last_seen_at:
        last = f"{entry.occurrences:,}, the last one"
        facts.append(("Occurrences", _by_and_when(last, entry.last_seen_at, now)))
    if entry.resolved_at:
        facts.append(("Closed", _by_and_when(entry.resolved_by, entry.resolved_at, now)))
    if entry.fingerprint:
        facts += [
            ("Queue", render.printable(entry.original_queue)),
            ("Exchange", render.printable(entry.original_exchange)),
            ("Routing key", render.printable(entry.original_routing_key)),
            ("Fingerprint", render.mono(entry.fingerprint)),
        ]
    return facts


def _by_and_when(who: str, at: datetime, now: datetime) -> SafeString:
    return format_html("{} · {} · {}", render.moment(at), render.since(at, now), who or "?")


def subject_link(entry: DLQEntry, *, short: bool = False) -> SafeString | None:
    """What it is about, if anything: its page is found without reading it."""
    if entry.subject_id is None:
        return None
    id = render.short_id(entry.subject_id) if short else render.mono(entry.subject_id)
    kind = investigations.kinds().get(entry.subject_kind)
    if kind is not None:
        page = f"admin:{kind.model.lower().replace('.', '_')}_change"
        id = render.link(reverse(page, args=[entry.subject_id]), id)
    named = "" if short else entry.subject_name
    return format_html("{} {} {}", entry.subject_kind, id, named)


def x_death_table(deaths: Any) -> SafeString | str:
    """RabbitMQ's `x-death`, newest death first: one row for each queue and reason."""
    if not deaths:
        return "The letter brought none."
    headers = ["Count", "Reason", "Queue", "Exchange", "Routing keys", "First time"]
    return render.table(headers, _deaths(deaths))


def _deaths(deaths: Any) -> Iterator[tuple[Any, ...]]:
    for death in deaths if isinstance(deaths, list) else [deaths]:
        if not isinstance(death, dict):
            # headers come from outside: anything may be in them
            yield ("?", render.printable(death), "", "", "", "")
            continue
        keys = death.get("routing-keys")
        yield (
            render.printable(death.get("count", "")),
            render.printable(death.get("reason", "")),
            render.printable(death.get("queue", "")),
            render.printable(death.get("exchange", "")),
            render.printable(", ".join(map(str, keys)) if isinstance(keys, list) else keys or ""),
            _time(death.get("time")),
        )


def _time(value: Any) -> Any:
    """AMQP's timestamp: seconds since 1970, or what JSON made of the client's datetime."""
    try:
        if isinstance(value, int):
            return render.moment(datetime.fromtimestamp(value, UTC))
        at = datetime.fromisoformat(value)
        return render.moment(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (OverflowError, OSError, TypeError, ValueError):
        return "" if value is None else render.printable(value)


def _body(body: bytes) -> Section:
    text = body[: words.HEX_LIMIT_BYTES].decode("utf-8", "replace")
    return Section(
        title=f"Body, as received: {len(body):,} bytes",
        body=format_html(
            '<h3 class="m-subtitle">As text</h3>{}<h3 class="m-subtitle">As bytes</h3>{}',
            render.preformatted(text),
            render.hex_dump(body),
        ),
    )
