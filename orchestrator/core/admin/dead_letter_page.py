"""The page of one DLQ entry: its situation, its notes, and everything that was stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.core import investigations, words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.authority import Principal
from orchestrator.core.models import DLQEntry
from orchestrator.core.models.dead_letters import RESOLUTION_KINDS
from orchestrator.core.shown import investigations as shown


def sections(obj: DLQEntry, now: datetime, *, seen_by: Principal) -> list[Section]:
    """The boxes of an entry's page."""
    situation = shown.situation(obj, now, seen_by=seen_by)
    facts = [*render.facts(situation), ("About", subject_link(obj))]
    boxes = [Section(facts=facts, kind=RESOLUTION_KINDS.get(_status(obj), ""))]
    if not obj.is_closed:
        boxes.append(Section(title="What to do", body=_what_to_do(obj)))
    if obj.notes:
        rows = [(at, by, render.printable(text)) for at, by, text in shown.notes(obj)]
        boxes.append(Section(title="Notes", body=render.table(["At", "By", "Note"], rows)))
    if obj.fingerprint:
        headers = shown.headers(obj, seen_by=seen_by)
        boxes += [
            Section(title="Deaths (x-death)", body=x_death_table(shown.x_death(obj))),
            Section(title="Headers", body=render.pretty_json(headers), wide=False),
        ]
    snapshot = render.pretty_json(shown.snapshot(obj, seen_by=seen_by))
    boxes.append(
        Section(
            title="The subject when the entry was opened",
            body=folded(snapshot) if obj.snapshot else "none: it has no subject",
            wide=not obj.fingerprint,
        )
    )
    if obj.metadata:
        boxes.append(Section(title="Metadata", body=render.pretty_json(shown.metadata(obj))))
    if (body := shown.body(obj, seen_by=seen_by)) is not None:
        boxes.append(_body(body))
    return boxes


def _what_to_do(entry: DLQEntry) -> SafeString | str:
    """The way to the repair, and from there back to the investigation."""
    link = subject_link(entry)
    if link is None:
        return (
            "It is about a letter that names nothing: find who sent it, by its headers and its "
            "body below. Then close the investigation with a note."
        )
    page = {
        "execution": "Its page has the history, and runs it again",
        "task": "Its page has the steps, with a repair for each that is stuck",
    }.get(entry.subject_kind, "Its page has the repairs")
    return format_html("{}: {}. Then close the investigation with a note.", page, link)


def folded(body: SafeString | str) -> SafeString:
    """Something long, to be opened."""
    return format_html("<details><summary>Show</summary>{}</details>", body)


def _status(entry: DLQEntry) -> str:
    return str(entry.resolution_status)


def subject_link(entry: DLQEntry, *, short: bool = False) -> SafeString | None:
    """A link to its subject, if it has one. The subject itself is not read."""
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
        return "The letter had none."
    rows = ([_cell(value) for value in death] for death in shown.deaths(deaths))
    return render.table(shown.DEATH, rows)


def _cell(value: Any) -> Any:
    return render.moment(value) if isinstance(value, datetime) else render.printable(value)


def _body(body: bytes | str) -> Section:
    if isinstance(body, str):
        return Section(title="Body", body=body)
    title = f"Body, as received: {len(body):,} bytes"
    text = body[: words.HEX_LIMIT_BYTES].decode("utf-8", "replace")
    return Section(
        title=title,
        body=format_html(
            '<h3 class="m-subtitle">As text</h3>{}<h3 class="m-subtitle">As bytes</h3>{}',
            render.preformatted(text),
            render.hex_dump(body),
        ),
    )
