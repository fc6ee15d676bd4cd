"""Inquiries: those that are open, those that are over, and one with the form for its answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from orchestrator.console import access, draw, paging
from orchestrator.console.access import Context
from orchestrator.console.acts import Dialog
from orchestrator.console.look import Look
from orchestrator.core import words
from orchestrator.core.words import Kind
from orchestrator.inquiries import answerers, answering
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.response_form import ResponseForm
from orchestrator.inquiries.shown import inquiries as shown
from orchestrator.inquiries.states import KINDS, TERMINAL

URGENT_SECONDS = 900
UNLISTED = ("schema", "response", "default")


@dataclass(frozen=True)
class Row:
    """An inquiry as lists show it."""

    inquiry: Inquiry
    now: datetime
    may_answer: bool

    @property
    def question(self) -> str:
        return draw.printable(shown.line(self.inquiry))

    @property
    def who(self) -> str:
        return ", ".join(self.inquiry.assignees) or "anybody with permission"

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.inquiry.state, Kind.PLAIN)

    @property
    def left(self) -> str:
        """The time that is left, or by how much it is over."""
        return words.due(self.inquiry.expires_at, self.now)[0]

    @property
    def is_urgent(self) -> bool:
        return (self.inquiry.expires_at - self.now).total_seconds() < URGENT_SECONDS


@access.page("inquiries", needs="inquiries.read", topics="inquiry,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """The open ones, the first to expire first; then those that are over, the newest first."""
    query = paging.query_of(request)
    visible = Inquiry.objects.visible_to(look.user).defer(*UNLISTED)
    state = query.get("state", "")
    is_first = paging.BEFORE not in query and not state
    waiting = visible.open() if is_first else visible.none()
    ended = visible.filter(ended_at__isnull=False)
    listed = paging.newest(request, ended.filter(state=state) if state else ended)
    open_rows = _rows(look, waiting.order_by("expires_at", "pk")[: paging.ROWS + 1])
    return {
        "title": "Inquiries",
        "here": "inquiries",
        "open": open_rows[: paging.ROWS],
        "is_more_open": len(open_rows) > paging.ROWS,
        "rows_max": paging.ROWS,
        "is_first": is_first,
        "listed": listed,
        "ended": _rows(look, listed.rows),
        "query": query,
        "is_filtered": paging.is_filtered(query),
        "states": sorted(TERMINAL),
    }


def _rows(look: Look, inquiries: Iterable[Inquiry]) -> list[Row]:
    return [Row(each, look.now, _may_answer(each, look)) for each in inquiries]


def _may_answer(inquiry: Inquiry, look: Look) -> bool:
    return shown.is_answerable(inquiry, look.now) and answerers.may(inquiry, look.user)


@access.page("inquiry", needs="inquiries.read", topics="inquiry,clock")
def show(look: Look, request: HttpRequest, id: UUID, form: ResponseForm | None = None) -> Context:
    """An inquiry: what is asked, of whom, until when; and the form for the answer, or why there is
    none.

    `form`: an answer that was refused.
    """
    inquiry = answering.find(id, look.user)
    is_answerable = shown.is_answerable(inquiry, look.now)
    may_answer = _may_answer(inquiry, look)
    if form is None and may_answer:
        form = ResponseForm(inquiry=inquiry)
    dialogs = [_cancel(id)] if look.may(answering.CANCEL, inquiry.place) else []
    return {
        "title": draw.printable(shown.line(inquiry)),
        "here": "inquiries",
        "topics": f"inquiry:{id},clock" if is_answerable else f"inquiry:{id}",
        "inquiry": inquiry,
        "kind": KINDS.get(inquiry.state, Kind.PLAIN),
        "question": draw.printable(inquiry.prompt),
        "situation": draw.facts(
            shown.situation(inquiry, look.now, seen_by=look.user), seen_by=look.user
        ),
        "timeline": [draw.line(each) for each in shown.timeline(inquiry)],
        "schema": draw.json(shown.schema(inquiry)),
        "form": form,
        "may_answer": may_answer,
        "told": _told(inquiry, look, is_answerable=is_answerable),
        "dialogs": dialogs,
        "orders": dialogs if inquiry.is_open else [],
    }


def _told(inquiry: Inquiry, look: Look, *, is_answerable: bool) -> str:
    """The reason why the user cannot answer it now; empty if they can."""
    if not is_answerable:
        return f"It {answering.how_it_ended(inquiry, timezone.get_current_timezone())}."
    if not look.may(answerers.RESPOND, inquiry.place):
        return f"Your answer would need the permission {answerers.RESPOND}."
    why = answerers.refusal(inquiry, look.user)
    return f"{why}." if why else ""


def _cancel(id: UUID) -> Dialog:
    return Dialog(
        id="cancel",
        label="Cancel",
        button="Cancel the inquiry",
        question="Cancel this inquiry?",
        explanation="Nobody can answer it any more, and what waits for the answer fails.",
        url=reverse("console:cancel_inquiry", args=[id]),
    )
