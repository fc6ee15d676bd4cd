"""The timeline of a task as people read it: moves between inner states are folded, and many alike
in a row are one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.core.shown.values import Happening
from orchestrator.workflows.models import TransitionRecord

INNER_OF_TASK = frozenset(
    {"initialize", "enqueue_steps", "process_steps", "evaluate", "wait_for_dependencies"}
)
"""Events of a task that happen within one transaction, or follow from those of its steps."""
INNER_OF_STEP = frozenset({"enqueue", "hand_in"})
START = "start"
ALIKE_FROM = 3
"""From this number on, the same event of steps of one kind, one after the other, is one line."""


@dataclass(frozen=True)
class Line:
    """One line, and the number of its first record."""

    id: int
    happening: Happening
    subject: str


def of_task(
    records: Sequence[TransitionRecord], *, since: datetime | None, with_inner: bool = False
) -> tuple[list[Line], int]:
    """The lines of these records, the oldest first, each loaded with its step; and how many records
    were folded. `since`: when the task was accepted, if nothing came between."""
    latest = {record.step_id: record.pk for record in records}
    kept = [
        record
        for record in records
        if with_inner or not is_inner(record, is_latest=latest[record.step_id] == record.pk)
    ]
    lines: list[Line] = []
    for group in _groups(kept, is_open=with_inner):
        before = lines[-1].happening.at if lines else since or group[0].at
        lines.append(_line(group, (group[0].at - before).total_seconds()))
    return lines, len(records) - len(lines)


def is_inner(record: TransitionRecord, *, is_latest: bool) -> bool:
    """Return True if it only leads from one state to the next. `is_latest`: of its step; that it
    runs is no news once it has ended."""
    if record.step_id is None:
        return record.event in INNER_OF_TASK
    return record.event in INNER_OF_STEP or (record.event == START and not is_latest)


def _groups(
    records: Sequence[TransitionRecord], *, is_open: bool
) -> Iterator[list[TransitionRecord]]:
    """Records in a row that say the same of steps of one kind."""
    group: list[TransitionRecord] = []
    for record in records:
        if group and (is_open or _key(record) != _key(group[0])):
            yield from _closed(group)
            group = []
        group.append(record)
    if group:
        yield from _closed(group)


def _closed(group: list[TransitionRecord]) -> Iterator[list[TransitionRecord]]:
    if len(group) >= ALIKE_FROM:
        yield group
    else:
        yield from ([record] for record in group)


def _key(record: TransitionRecord) -> tuple[str, ...]:
    kind = record.step.template_step if record.step else ""
    return kind, record.event, record.to_state, record.actor, record.reason


def _line(group: Sequence[TransitionRecord], after_seconds: float) -> Line:
    first = group[0]
    subject = first.step.name if first.step else "task"
    if len(group) > 1:
        kind = first.step.template_step if first.step else "task"
        subject = f"{kind} ×{len(group):,}"  # noqa: RUF001 - times
    line = Happening(
        at=first.at,
        after_seconds=after_seconds,
        event=first.event,
        was=first.from_state,
        to=first.to_state,
        actor=first.actor,
        reason=first.reason,
        subject=subject,
        processor=first.processor,
    )
    return Line(first.pk, line, subject)
