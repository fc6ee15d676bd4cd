"""Triage: what is to be looked into, by cause, the most urgent first; one cause; one entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.safestring import SafeString

from orchestrator.console import access, closing, draw, evidence
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.console.paging import ROWS
from orchestrator.core import investigations, words
from orchestrator.core.models import DLQEntry, InvestigationQueue
from orchestrator.core.models.dead_letters import REASON_KINDS, RESOLUTION_KINDS
from orchestrator.core.redaction import REDACTED
from orchestrator.core.shown import investigations as shown
from orchestrator.core.words import Kind
from orchestrator.rollups import inbox, patterns
from orchestrator.rollups.inbox import Cause

CAUSES_MAX = 50


@dataclass(frozen=True)
class CauseRow:
    """A cause as the inbox shows it."""

    cause: Cause
    detail: str
    kind: Kind
    url: str
    age: str
    score: str
    why: str


@dataclass(frozen=True)
class EntryRow:
    """An entry as a list shows it."""

    row: InvestigationQueue
    detail: str
    url: str
    age: str
    score: str
    why: str


@access.page("triage", needs="dlq.read", topics="dlq,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """Everything that is pending, by cause."""
    found = inbox.read(look.user)
    return {
        "title": "Triage",
        "here": "triage",
        "rows": [_cause(each, look) for each in found.causes[:CAUSES_MAX]],
        "causes": len(found.causes),
        "count": found.count,
        "is_cut": found.is_cut,
        "looked_at": inbox.LOOKED_AT,
        "may_change": look.may("dlq.change"),
    }


@access.page("triage_cause", needs="dlq.read", topics="dlq,clock")
def show_cause(look: Look, request: HttpRequest, key: str) -> Context:
    """The entries of one cause, and what closes them all."""
    found = inbox.read(look.user)
    cause = found.of(key)
    may_close = look.may("dlq.change", cause.first.place)
    return {
        "title": f"{cause.count:,} of {cause.first.subject_name or 'letters'}",
        "here": "triage",
        "head": _cause(cause, look),
        "rows": [_entry(row, look) for row in cause.rows[:ROWS]],
        "more": max(0, cause.count - ROWS),
        "is_cut": found.is_cut,
        "looked_at": inbox.LOOKED_AT,
        "dialogs": [closing.of_cause(cause)] if may_close else [],
    }


@access.page("triage_entry", needs="dlq.read", topics="dlq,clock")
def show(look: Look, request: HttpRequest, id: UUID) -> Context:
    """One entry: the evidence, where it is repaired, and what closes it."""
    entry = closing.entry(look, id, "dlq.read")
    row = _row(entry)
    may_close = not entry.is_closed and look.may("dlq.change", entry.place)
    seen = look.user
    return {
        "title": f"{entry.subject_kind or 'letter'} {entry.subject_name}".strip(),
        "here": "triage",
        "entry": entry,
        "reason_kind": REASON_KINDS.get(entry.dlq_reason, Kind.PLAIN),
        "resolution_kind": RESOLUTION_KINDS.get(entry.resolution_status, Kind.PLAIN),
        "situation": draw.facts(shown.situation(entry, look.now, seen_by=seen), seen_by=look.user),
        "why": _why(row) if row else "",
        "cause_url": "" if entry.is_closed else _cause_url(inbox.key_of(entry)),
        "notes": [(at, by, draw.printable(text)) for at, by, text in shown.notes(entry)],
        "evidence": evidence.of(entry, look) if entry.snapshot else None,
        "letter": _letter(entry, look),
        "subject": subject_link(entry),
        "advice": ADVICE.get(entry.subject_kind, ADVICE[""]),
        "dialogs": closing.of_entry(entry) if may_close else [],
    }


ADVICE = {
    "task": "Its page has the steps, with a repair for each that is stuck: reset it, count it as "
    "done, or give its result. Then close the investigation.",
    "execution": "Its page says what happened, and runs it again. Then close the investigation.",
    "": "A letter that names nothing: find who sent it by what it has, then close the "
    "investigation.",
}


def subject_link(entry: DLQEntry) -> tuple[str, str] | None:
    """The text and the address of where its subject is repaired; None for a letter."""
    if entry.subject_id is None:
        return None
    text = f"{entry.subject_kind} {entry.subject_name or entry.subject_id}"
    try:
        # a kind of subject that has a page here: `console:task`, `console:execution`
        return text, reverse(f"console:{entry.subject_kind}", args=[entry.subject_id])
    except NoReverseMatch:
        return text, _in_the_admin(entry)


def _in_the_admin(entry: DLQEntry) -> str:
    kind = investigations.kinds().get(entry.subject_kind)
    page = kind.model.lower().replace(".", "_") if kind else ""
    try:
        return reverse(f"admin:{page}_change", args=[entry.subject_id])
    except NoReverseMatch:
        return reverse("admin:orchestrator_dlqentry_change", args=[entry.pk])


def _cause_url(key: str) -> str:
    return reverse("console:triage_cause", args=[key])


def _cause(cause: Cause, look: Look) -> CauseRow:
    first = cause.first
    oldest = max(row.minutes_in_dlq for row in cause.rows)
    return CauseRow(
        cause=cause,
        detail=_in_common(cause, look),
        kind=REASON_KINDS.get(first.dlq_reason, Kind.PLAIN),
        url=_cause_url(cause.key),
        age=words.span(oldest * 60),
        score=f"{first.priority_score:,.0f}",
        why=_why(first),
    )


def _in_common(cause: Cause, look: Look) -> str:
    """The pattern of the details, or the detail if there is one alone."""
    detail = shown.detail(cause.first, seen_by=look.user)
    is_hidden = detail == REDACTED
    return detail if cause.count == 1 or is_hidden else patterns.of(detail)


def _entry(row: InvestigationQueue, look: Look) -> EntryRow:
    return EntryRow(
        row=row,
        detail=shown.detail(row, seen_by=look.user),
        url=reverse("console:triage_entry", args=[row.dlq_entry_uuid]),
        age=words.span(row.minutes_in_dlq * 60),
        score=f"{row.priority_score:,.0f}",
        why=_why(row),
    )


def _why(row: InvestigationQueue) -> str:
    """The parts of a score in words."""
    base, minutes = inbox.score(row)
    cause = row.dlq_reason + " and its priority" * (row.subject_kind == "execution")
    return f"{base:,.0f} for {cause}, {minutes:,.0f} for as many minutes unattended"


def _row(entry: DLQEntry) -> InvestigationQueue | None:
    if entry.is_closed:
        return None
    return InvestigationQueue.objects.filter(dlq_entry_uuid=entry.dlq_entry_uuid).first()


def _letter(entry: DLQEntry, look: Look) -> list[tuple[str, SafeString | str]]:
    """The parts that there are of a letter."""
    if not entry.fingerprint:
        return []
    body = shown.body(entry, seen_by=look.user)
    if isinstance(body, bytes):
        body = body[: words.HEX_LIMIT_BYTES].decode("utf-8", "replace")
    parts: list[tuple[str, Any]] = [
        ("Deaths", draw.json(shown.x_death(entry))),
        ("Headers", draw.json(shown.headers(entry, seen_by=look.user))),
        ("Body", draw.printable(body) if body else ""),
    ]
    return [(name, text) for name, text in parts if text]
