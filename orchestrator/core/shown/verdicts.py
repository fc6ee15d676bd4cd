"""An execution in a sentence or two: how it ended, or what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.shown import executions as shown
from orchestrator.core.states import ExecutionStatus

S = ExecutionStatus

MESSAGE_MAX = 400


def verdict(execution: Execution, now: datetime, *, seen_by: Principal) -> str:
    """The verdict on an execution: how it ended and why, and whether to run it again; or where it
    stands."""
    sentences = _ended(execution, seen_by) if execution.is_terminal else _open(execution, now)
    return " ".join(f"{each}." for each in sentences)


def _ended(execution: Execution, seen_by: Principal) -> Iterator[str]:
    reason = _reason(execution.reason)
    text = reason.text if reason else execution.reason
    message = shown.message_in(shown.result(execution, seen_by=seen_by))
    has_failed = execution.status != S.COMPLETED
    yield f"{text[:1].upper()}{text[1:]}" + (
        f": “{_cut(message)}”" if message and has_failed else ""
    )
    if execution.cancel_reason:
        yield f"It was cancelled because of “{_cut(execution.cancel_reason)}”"
    if reason and has_failed:
        yield shown.known(reason, began_before=shown.began_before(execution))
    if execution.retry_count:
        times = "once" if execution.retry_count == 1 else f"{execution.retry_count} times"
        yield f"It was tried again {times} before"


def _open(execution: Execution, now: datetime) -> Iterator[str]:
    where = execution.worker_name or "its worker"
    since = _stage_began(execution)
    lasts = f"for {words.span((now - since).total_seconds())}" if since else "now"
    match S(execution.status):
        case S.SCHEDULED:
            yield f"It has been in the queue of {where} {lasts}"
        case S.RUNNING:
            yield f"It has run on {where} {lasts}"
        case S.CANCELING:
            because = (
                f" because of “{_cut(execution.cancel_reason)}”" if execution.cancel_reason else ""
            )
            yield f"{where} is stopping it{because}"
        case _:
            waits_for = shown.waits_for(execution, now)
            yield f"It waits: {waits_for}" if waits_for else "It waits to be given to a worker"
    last = _reason(execution.reason)
    if last:
        yield f"Its last attempt ended so: {last.text[:1].lower()}{last.text[1:]}"


def _stage_began(execution: Execution) -> datetime | None:
    if execution.status == S.SCHEDULED:
        return execution.scheduled_at
    return execution.started_at


def _reason(code: str) -> Reason | None:
    return Reason(code) if code in Reason.__members__.values() else None


def _cut(text: str) -> str:
    return text.rstrip(".") if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}…"
