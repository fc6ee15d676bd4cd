"""The standing of a task, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.utils import timezone

from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.workflows.models import Step, Task
from orchestrator.workflows.shown import steps
from orchestrator.workflows.shown.tasks import QUARANTINE, done
from orchestrator.workflows.states import StepState, TaskState

S, T = StepState, TaskState

BEGINNING = (T.PENDING, T.INITIALIZING)
BY_HAND = (T.CANCELLED, T.RESOLVED_MANUALLY, T.ERROR)
NOTED = (S.ERROR, S.WAITING_FOR_RETRY, S.WAITING_FOR_INQUIRY, S.CANCELLED)
"""The states of steps that a sentence names."""
DOING: Mapping[StepState, str] = {
    S.IN_PROGRESS: "in progress",
    S.ENQUEUED: "waiting for a slot",
    S.WAITING_FOR_RETRY: "waiting for the next attempt",
    S.WAITING_FOR_INQUIRY: "waiting for an answer",
    S.ERROR: "failed",
    S.PENDING: "not begun",
}


def of_task(
    task: Task,
    *,
    counts: Mapping[StepState, int],
    noted: Sequence[Step],
    last_move: tuple[str, str],
    now: datetime,
    seen_by: Principal,
) -> str:
    """Say where it stands. `counts`: its steps by state. `noted`: some of its steps in a state of
    `NOTED`, the worst first, each with its task and template. `last_move`: by whom the task moved
    the last time, and why."""
    state = TaskState(task.state)
    if state in BY_HAND:
        return _ended_by_hand(task, *last_move, now)
    if state == T.COMPLETE and task.ended_at is not None:
        took = words.span((task.ended_at - task.created_at).total_seconds())
        return f"Complete after {took}: {done(counts):,} of {sum(counts.values()):,} steps."
    if state == T.BLOCKED_BY_FAILURES:
        return _blocked(task, noted, counts, now, seen_by)
    if state in BEGINNING:
        return f"Not begun yet, since {_time(task.created_at, now)}."
    if state == T.WAITING_FOR_RETRY and task.next_retry_at is not None:
        return _waits_for_retry(noted, words.due(task.next_retry_at, now)[0])
    doing = ", ".join(
        f"{counts[each]:,} {text}" for each, text in DOING.items() if counts.get(each)
    )
    return f"{done(counts):,} of {sum(counts.values()):,} steps are done: {doing or 'goes on'}."


def _blocked(
    task: Task,
    noted: Sequence[Step],
    counts: Mapping[StepState, int],
    now: datetime,
    seen_by: Principal,
) -> str:
    since = _time(task.state_entered_at, now)
    standing = [step for step in noted if step.state in (S.ERROR, S.CANCELLED)]
    if not standing:
        return f"Blocked since {since}."
    first = standing[0]
    others = counts.get(S.ERROR, 0) + counts.get(S.CANCELLED, 0) - 1
    more = f" and {others:,} more" if others > 0 else ""
    what = "was cancelled" if first.state == S.CANCELLED else steps.message(first, seen_by=seen_by)
    tried = f", {steps.attempts(first)} attempts" if first.attempts else ""
    return f"Blocked by {first.name}{more} since {since}: {what or 'it failed'}{tried}."


def _waits_for_retry(noted: Sequence[Step], due: str) -> str:
    step = next((step for step in noted if step.state == S.WAITING_FOR_RETRY), None)
    if step is None:
        return f"The next attempt is due {due}."
    return f"{step.name} is tried again {due}: attempt {step.attempts + 1} of {step.max_attempts}."


def _ended_by_hand(task: Task, by: str, reason: str, now: datetime) -> str:
    text = "In error" if task.state == T.ERROR else str(task.state).replace("_", " ").capitalize()
    text += f" since {_time(task.state_entered_at, now)}"
    if task.is_quarantined:
        return f"{text}: {QUARANTINE}."
    return f"{text}, by {by}" + (f": {reason}." if reason else ".") if by else f"{text}."


def _time(at: datetime, now: datetime) -> str:
    """The time of the day; with the date if that is another day."""
    local, today = timezone.localtime(at), timezone.localtime(now)
    return f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M:%S}"
