"""From the end of an inquiry to what it held up, and back: an end of either ends both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from orchestrator.core import database, executions
from orchestrator.core.models import Action, Execution
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from orchestrator.inquiries import answering, waiting
from orchestrator.inquiries.models import Inquiry, InquiryWait
from orchestrator.inquiries.questions import COMPLETE
from orchestrator.inquiries.states import InquiryState

GRACE = timedelta(seconds=1)
"""A younger execution is normally handled by the receiver of its message."""

REASONS = {
    InquiryState.TIMED_OUT: Reason.INQUIRY_TIMED_OUT,
    InquiryState.CANCELLED: Reason.INQUIRY_CANCELLED,
}


def resume(inquiry_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Let what these inquiries held up go on, if they have ended; returns how many executions
    ended. Safe to run twice, and at once with others."""
    waits = InquiryWait.objects.open().filter(inquiry__in=list(inquiry_ids))
    return _resume(waits.filter(inquiry__ended_at__isnull=False), now=now, actor=actor)


def note_ended(execution_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Cancel the inquiries that held up executions which ended by themselves."""
    waits = InquiryWait.objects.open().filter(execution__in=list(execution_ids))
    return _release(waits, now=now, actor=actor)


def any_open() -> bool:
    """Return True while an inquiry holds up an execution."""
    return InquiryWait.objects.open().exists()


def look(*, now: datetime, actor: str) -> int:
    """Find what no message reported: questions not asked yet, inquiries that ended, executions that
    ended. Returns how many."""
    waits = InquiryWait.objects.open()
    parts = {
        "asked": partial(_ask_overlooked, now=now, actor=actor),
        "resumed": partial(
            _resume, waits.filter(inquiry__ended_at__isnull=False), now=now, actor=actor
        ),
        "released": partial(_release, waits, now=now, actor=actor),
    }
    return sum(database.carry_out_each(parts).values())


def expire_inquiries(*, now: datetime) -> dict[str, int]:
    """End the inquiries whose time for an answer is over; what they held up hears of it by
    message, and by looking."""
    total = 0
    size: int = settings.MUSTER.batch_size
    while True:
        overdue = list(Inquiry.objects.overdue(now)[:size])
        expired = answering.expire(overdue, now=now, actor="expire_inquiries")
        total += expired
        if len(overdue) < size or not expired:
            return {"timed_out": total}


def bring_forward(*, now: datetime) -> int:
    """Let what was asked by a clock that was set back since count as asked now: else it would
    expire later by as much. Returns how many inquiries."""
    later = Inquiry.objects.open().filter(created_at__gt=now + PROCESSES_DIFFER_BY)
    return later.update(created_at=now, expires_at=now + (F("expires_at") - F("created_at")))


def _ask_overlooked(*, now: datetime, actor: str) -> int:
    actions = Action.objects.filter(runtime=waiting.RUNTIME).values_list("pk", flat=True)
    latest = now + PROCESSES_DIFFER_BY
    long_ago = Q(created_at__lte=now - GRACE) | Q(created_at__gt=latest)
    rows = Execution.objects.in_status(ExecutionStatus.REQUESTED).filter(
        long_ago, action__in=list(actions), deadline_at__gt=now
    )
    overlooked = list(rows.only("pk").order_by("pk")[: settings.MUSTER.batch_size])
    return waiting.take(overlooked, now=now, actor=actor) if overlooked else 0


def _resume(waits: Any, *, now: datetime, actor: str) -> int:
    """End the executions of these waits as their inquiries ended:

    1. Answered, or timed out with a default: complete with that as the result.
    2. Else: fail, with the reason.
    3. Note that they know, unless another transaction holds their rows at the moment.
    """
    with transaction.atomic():
        found = list(waits.select_related("inquiry").order_by("pk")[: settings.MUSTER.batch_size])
        if not found:
            return 0
        rows = Execution.objects.in_bulk([wait.execution_id for wait in found])
        over = {wait.pk for wait in found if wait.pk not in rows or rows[wait.pk].is_terminal}
        open_ones = [
            wait
            for wait in found
            if wait.pk not in over and rows[wait.pk].status == ExecutionStatus.SCHEDULING
        ]
        moved = _complete(open_ones, rows, now=now, actor=actor)
        moved |= _fail(open_ones, now=now, actor=actor)
        InquiryWait.objects.open().filter(pk__in=over | moved).update(resumed_at=now)
    return len(moved)


def _complete(
    waits: Iterable[InquiryWait], rows: dict[UUID, Execution], *, now: datetime, actor: str
) -> set[UUID]:
    results = {wait.pk: result_of(wait.inquiry) for wait in waits if _completes(wait.inquiry)}
    return executions.answer([rows[id] for id in results], results, now=now, actor=actor)


def _fail(waits: Iterable[InquiryWait], *, now: datetime, actor: str) -> set[UUID]:
    details: dict[Reason, dict[UUID, str]] = defaultdict(dict)
    for wait in waits:
        if not _completes(wait.inquiry):
            inquiry = wait.inquiry
            detail = f"inquiry {inquiry.pk} {answering.how_it_ended(inquiry)}"
            details[REASONS[InquiryState(inquiry.state)]][wait.pk] = detail
    moved: set[UUID] = set()
    for reason, group in details.items():
        # their actions are asked for their retry policies
        known = Execution.objects.filter(pk__in=group).without_contents().with_actions()
        moved |= executions.end_attempts(
            known, reason=reason, detail=group, failed_by=actor, now=now
        )
    return moved


def _completes(inquiry: Inquiry) -> bool:
    if inquiry.state == InquiryState.TIMED_OUT:
        return inquiry.on_timeout == COMPLETE
    return inquiry.state == InquiryState.RESPONDED


def result_of(inquiry: Inquiry) -> Any:
    """The result of what it held up."""
    return inquiry.response if inquiry.state == InquiryState.RESPONDED else inquiry.default


def _release(waits: Any, *, now: datetime, actor: str) -> int:
    """Note which executions ended before their inquiries did, and cancel the inquiries of their own
    that nobody waits for any more. One that another execution has asked stays: a repaired step may
    wait for it again."""
    ended = waits.filter(execution__ended_at__isnull=False, inquiry__ended_at__isnull=True)
    with transaction.atomic():
        found: Sequence[InquiryWait] = list(ended.order_by("pk")[: settings.MUSTER.batch_size])
        if not found:
            return 0
        released = InquiryWait.objects.open().filter(pk__in=[wait.pk for wait in found])
        released.update(resumed_at=now)
        own = {wait.inquiry_id for wait in found}
        inquiries = Inquiry.objects.open().filter(
            pk__in=own, asked_by_execution__in={wait.execution_id for wait in found}
        )
        needed = set(
            InquiryWait.objects.open()
            .filter(inquiry__in=list(inquiries))
            .values_list("inquiry_id", flat=True)
        )
        unneeded = [inquiry for inquiry in inquiries if inquiry.pk not in needed]
        answering.cancel_all(
            unneeded, now=now, actor=actor, reason="the execution that it held up has ended"
        )
    return len(found)
