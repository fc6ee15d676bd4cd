"""Acts of triage: close an investigation, or all of one cause, and add a note. Each needs one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import acts
from orchestrator.console.acts import Done
from orchestrator.console.look import Look
from orchestrator.core import authority, clock, investigations
from orchestrator.core.errors import MusterError
from orchestrator.core.models import DLQEntry
from orchestrator.core.models.dead_letters import DLQEntryQuerySet
from orchestrator.rollups import inbox
from orchestrator.rollups.inbox import Cause

NOTE_MAX = 2_000
REFUSALS_SHOWN = 20
RESOLUTIONS = (
    (DLQEntry.Resolution.MANUALLY_RESOLVED, "resolved: the problem is solved"),
    (DLQEntry.Resolution.PERMANENTLY_FAILED, "failed for good: nothing more can be done"),
    (DLQEntry.Resolution.CANCELLED, "not needed: nobody has to look into it"),
)


class UnknownResolution(MusterError):
    """An investigation ends in one of three ways."""


@dataclass(frozen=True)
class NoteDialog:
    """A dialog that asks for a note, as `note_dialog.html` draws it."""

    id: str
    label: str
    button: str
    question: str
    explanation: str
    url: str
    hidden: dict[str, str] = field(default_factory=dict)
    resolutions: Sequence[tuple[str, str]] = ()
    """The ways to close; none for a note alone."""
    note_max: int = NOTE_MAX


def of_cause(cause: Cause) -> NoteDialog:
    """The dialog that closes all entries of a cause that are on the page."""
    number = min(cause.count, inbox.CLOSED_AT_ONCE)
    one = "it" if cause.count == 1 else "them"
    explanation = f"The note is kept with each of {one}. A closed entry cannot be opened again."
    if cause.count > number:
        explanation += f" The {number} most urgent are closed at once, of {cause.count:,}."
    entries = "entry" if number == 1 else "entries"
    return NoteDialog(
        id="close",
        label=f"Close {number} {entries}",
        button=f"Close {number} {entries}",
        question=f"Close {number} {entries} of this cause?",
        explanation=explanation,
        url=reverse("console:triage_close_cause", args=[cause.key]),
        hidden={"until": str(cause.newest_id)},
        resolutions=RESOLUTIONS,
    )


def of_entry(entry: DLQEntry) -> list[NoteDialog]:
    """The dialogs for what one may do to an entry that is pending."""
    return [
        NoteDialog(
            id="close",
            label="Close",
            button="Close the entry",
            question="Close this investigation?",
            explanation="A closed entry cannot be opened again.",
            url=reverse("console:triage_close", args=[entry.dlq_entry_uuid]),
            resolutions=RESOLUTIONS,
        ),
        NoteDialog(
            id="note",
            label="Add a note",
            button="Add the note",
            question="Add a note",
            explanation="The entry stays open.",
            url=reverse("console:triage_note", args=[entry.dlq_entry_uuid]),
        ),
    ]


def entry(look: Look, id: UUID, permission: str) -> DLQEntry:
    """The entry with this id, if the user has the permission for what it is about. Raises
    UnknownEntry, and PermissionMissing for who may see it but not this."""
    rows: DLQEntryQuerySet = DLQEntry.objects.filter(dlq_entry_uuid=id)
    found = rows.first()
    if found is None or not look.may("dlq.read", found.place):
        raise investigations.UnknownEntry(f"No DLQ entry has the id {id}")
    authority.require(look.user, permission, found.place)
    return found


@acts.verb
def close_cause(look: Look, request: HttpRequest, key: str) -> Done:
    """Close the entries of a cause that the page showed; what is refused is told one by one."""
    authority.require(look.user, "dlq.change")
    resolution, note, until = _resolution(request), _note(request), _until(request)
    cause = inbox.read(look.user).of(key)
    outcome = inbox.close(
        cause.rows, until_id=until, resolution=resolution, note=note, by=look.user,
        read_clock=clock.now,
    )  # fmt: skip
    for refusal in outcome.refused[:REFUSALS_SHOWN]:
        messages.error(request, f"Still open: {refusal}")
    if len(outcome.refused) > REFUSALS_SHOWN:
        messages.error(request, f"And {len(outcome.refused) - REFUSALS_SHOWN} more are still open.")
    of = f" of {outcome.closed + len(outcome.refused)}" if outcome.refused else ""
    text = f"Closed {outcome.closed}{of}: {resolution}."
    if outcome.left:
        return Done(f"{text} {outcome.left:,} more of this cause are open.", _of_cause(key))
    return Done(text, reverse("console:triage"))


@acts.verb
def close(look: Look, request: HttpRequest, id: UUID) -> Done:
    """Close one entry."""
    entry(look, id, "dlq.change")
    resolution, note = _resolution(request), _note(request)
    investigations.close(
        id, resolution=resolution, note=note, now=clock.now(), actor=look.user.actor
    )
    return Done(f"Closed: {resolution}.", reverse("console:triage"))


@acts.verb
def annotate(look: Look, request: HttpRequest, id: UUID) -> Done:
    """Add a note to one entry."""
    entry(look, id, "dlq.change")
    investigations.annotate(id, note=_note(request), now=clock.now(), actor=look.user.actor)
    return Done("The note was added.", reverse("console:triage_entry", args=[id]))


def _of_cause(key: str) -> str:
    return reverse("console:triage_cause", args=[key])


def _note(request: HttpRequest) -> str:
    """The note that the form has. Raises NoteMissing."""
    note = request.POST.get("note", "")
    if len(note) > NOTE_MAX:
        raise inbox.NoteMissing(f"A note of 1 to {NOTE_MAX:,} characters is needed")
    return inbox.checked_note(note)


def _resolution(request: HttpRequest) -> DLQEntry.Resolution:
    given = request.POST.get("resolution", "")
    known = {str(resolution): resolution for resolution, _ in RESOLUTIONS}
    if given not in known:
        raise UnknownResolution(f"Expected a resolution, one of {', '.join(known)}")
    return known[given]


def _until(request: HttpRequest) -> int:
    """The newest entry that the page showed."""
    try:
        return int(request.POST.get("until", ""))
    except ValueError:
        raise UnknownUntil from None


class UnknownUntil(MusterError):
    """The form does not say up to which entry it closes: open the page of the cause again."""
