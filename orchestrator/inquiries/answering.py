"""Answers and cancels: each inquiry ends once, whoever is first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any, NoReturn
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from orchestrator.core import authority, json_values, relay
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict, MusterError, NotFound, Refusal, Refused
from orchestrator.core.state_machine import Move
from orchestrator.inquiries import answerers, messages, metrics, questions
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.models.inquiries import ANSWER_KEY_MAX
from orchestrator.inquiries.states import INQUIRIES, InquiryState

CANCEL = "inquiries.cancel"
REASON_MAX = 500


class UnknownInquiry(NotFound):
    """No inquiry has this id."""


class AlreadyEnded(Conflict):
    """The inquiry has ended."""

    kind = "already-ended"


class ResponseRefused(Refused):
    """The response does not fit the inquiry's schema."""


class ReasonTooLong(MusterError):
    """A reason has at most 500 characters."""


def respond(
    inquiry_id: UUID,
    response: Any,
    *,
    by: Principal,
    now: datetime,
    answer_key: str | None = None,
) -> Inquiry:
    """Answer an inquiry; returns its row. With the same `answer_key`, the same caller may repeat
    it: the stored answer is returned.

    Raises UnknownInquiry, PermissionMissing, MayNotAnswer, ResponseRefused with all problems, and
    AlreadyEnded, which says who ended it, how and when.
    """
    inquiry = find(inquiry_id, by)
    answerers.require(inquiry, by)
    if _is_repeated(inquiry, by, answer_key):
        return inquiry
    if not inquiry.is_open or inquiry.expires_at <= now:
        _refuse(inquiry, by, answerers.RESPOND)
    _check(inquiry, response, answer_key)
    values = {
        "response": response,
        "answered_by": by.actor,
        "answered_at": now,
        "answer_key": answer_key,
        "ended_by": by.actor,
    }
    moved = _end("respond", [inquiry], values, now=now, actor=by.actor)
    inquiry.refresh_from_db()
    if not moved and not _is_repeated(inquiry, by, answer_key):
        _refuse(inquiry, by, answerers.RESPOND)  # another process got there first
    return inquiry


def cancel(inquiry_id: UUID, *, by: Principal, now: datetime, reason: str = "") -> Inquiry:
    """Cancel an inquiry: nobody can answer it any more, and what it holds up fails.

    Raises UnknownInquiry, PermissionMissing, ReasonTooLong and AlreadyEnded.
    """
    inquiry = find(inquiry_id, by)
    authority.require(by, CANCEL, inquiry.place)
    if len(reason) > REASON_MAX:
        raise ReasonTooLong
    moved = _end(
        "cancel", [inquiry], {"ended_by": by.actor}, now=now, actor=by.actor, reason=reason
    )
    inquiry.refresh_from_db()
    if not moved:
        _refuse(inquiry, by, CANCEL)
    return inquiry


def cancel_all(inquiries: Sequence[Inquiry], *, now: datetime, actor: str, reason: str) -> int:
    """Cancel those of the inquiries that are still open: what they held up is over."""
    return len(_end("cancel", inquiries, {"ended_by": actor}, now=now, actor=actor, reason=reason))


def cancel_asked_by(
    execution_ids: Sequence[UUID] | QuerySet[Any, Any], *, now: datetime, actor: str, reason: str
) -> int:
    """Cancel the open inquiries of these executions, as their work is over."""
    asked = Inquiry.objects.open().filter(asked_by_execution__in=execution_ids)
    return cancel_all(list(asked), now=now, actor=actor, reason=reason)


def expire(inquiries: Sequence[Inquiry], *, now: datetime, actor: str) -> int:
    """End those of the inquiries that are still open, as their time is over."""
    return len(_end("expire", inquiries, {"ended_by": actor}, now=now, actor=actor))


def find(inquiry_id: UUID, by: Principal) -> Inquiry:
    """The inquiry, if the caller may see it. Raises UnknownInquiry."""
    inquiry = Inquiry.objects.visible_to(by).filter(pk=inquiry_id).first()
    if inquiry is None:
        raise UnknownInquiry(f"No inquiry has the id {inquiry_id}")
    return inquiry


def _end(
    event: str,
    inquiries: Sequence[Inquiry],
    values: dict[str, Any],
    *,
    now: datetime,
    actor: str,
    reason: str = "",
) -> set[UUID]:
    """Move the inquiries that are still as they were read; returns the ids that moved. The
    executors are told after the commit."""
    moves = [Move(each.pk, each.state, each.fence, values) for each in inquiries if each.is_open]
    try:
        with transaction.atomic():
            moved = Inquiry.objects.transition_many(
                event, moves, now=now, actor=actor, reason=reason, wait_for_locks=True
            )
            told = messages.ended(sorted(moved))
            transaction.on_commit(partial(relay.send_soon, told))
            if moved:
                metrics.ENDED.add({INQUIRIES.rule(event).target: len(moved)})
    except IntegrityError:
        if event != "respond":
            raise
        return set()  # it had expired: the constraint is in the same statement
    return moved


def _is_repeated(inquiry: Inquiry, by: Principal, answer_key: str | None) -> bool:
    is_same = answer_key is not None and inquiry.answer_key == answer_key
    return is_same and inquiry.answered_by == by.actor


def _refuse(inquiry: Inquiry, by: Principal, permission: str) -> NoReturn:
    """Raise AlreadyEnded, and let the audit know."""
    why = how_it_ended(inquiry)
    authority.note_refusal(by, permission, about=f"inquiry {inquiry.pk}", why=why)
    raise AlreadyEnded(f"Inquiry {inquiry.pk} {why}")


def how_it_ended(inquiry: Inquiry, zone: tzinfo = UTC) -> str:
    """The end of an inquiry: who ended it, how and when, as the end of a sentence."""
    if inquiry.is_open:
        return f"expired at {_moment(inquiry.expires_at, zone)}"
    assert inquiry.ended_at is not None
    at = _moment(inquiry.ended_at, zone)
    match InquiryState(inquiry.state):
        case InquiryState.RESPONDED:
            return f"was answered by {inquiry.answered_by} at {at}"
        case InquiryState.CANCELLED:
            why = f": {inquiry.reason}" if inquiry.reason else ""
            return f"was cancelled by {inquiry.ended_by} at {at}{why}"
        case _:
            return f"expired at {_moment(inquiry.expires_at, zone)}"


def _moment(at: datetime, zone: tzinfo) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def _check(inquiry: Inquiry, response: Any, answer_key: str | None) -> None:
    """Raise ResponseRefused with all problems."""
    refusals = [
        Refusal(0, f"/response{problem.pointer}", problem.message)
        for problem in questions.response_problems(inquiry.schema, response)
    ]
    if answer_key is not None:
        if not 0 < len(answer_key) <= ANSWER_KEY_MAX:
            message = f"expected 1 to {ANSWER_KEY_MAX} characters, found {len(answer_key)}"
            refusals.append(Refusal(0, "/answer_key", message))
        elif fault := json_values.text_fault(answer_key):
            refusals.append(Refusal(0, "/answer_key", f"contains {fault}"))
    if refusals:
        raise ResponseRefused(refusals)
