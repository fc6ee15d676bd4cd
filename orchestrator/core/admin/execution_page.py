"""One execution, laid out for whoever asks: what is it, where is it, why, and who moves it on."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.safestring import SafeString

from orchestrator.core import words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent
from orchestrator.core.shown import executions as shown

HISTORY_LIMIT = 200


def sections(execution: Execution, now: datetime) -> list[Section]:
    """The boxes of an execution's page."""
    situation = render.facts(shown.situation(execution, now))
    boxes = [
        Section(facts=situation, kind=words.kind_of(execution.status)),
        Section(title="Due", facts=render.facts(shown.due(execution, now)), wide=False),
        Section(title="Times", facts=render.facts(shown.times(execution, now)), wide=False),
        Section(title="History", body=timeline(execution)),
    ]
    if rows := [_dead_letter(entry) for entry in shown.letters(execution)]:
        headers = ["Drained", "Attempt", "Reason", "From queue", "Detail"]
        boxes.append(Section(title="Dead letters", body=render.table(headers, rows)))
    has_result = execution.result is not None
    result = render.result_json(shown.result(execution)) if has_result else "none yet"
    parameters = render.pretty_json(shown.parameters(execution))
    return [
        *boxes,
        Section(title="Parameters", body=parameters, wide=False),
        Section(title="Result", body=result, wide=False),
        Section(title="Request", facts=render.facts(shown.request(execution))),
    ]


def _dead_letter(entry: DLQEntry) -> list[Any]:
    return [
        render.link_to(entry, render.moment(entry.dlq_timestamp)),
        entry.attempt,
        render.code(entry.dlq_reason),
        render.printable(entry.original_queue),
        render.printable(entry.detail),
    ]


def timeline(execution: Execution) -> SafeString:
    """Every transition, oldest first, with the time since the one before; of many the last."""
    newest = ExecutionEvent.objects.filter(execution=execution).order_by("-pk")[: HISTORY_LIMIT + 1]
    events = list(newest)[::-1]
    left_out = len(events) > HISTORY_LIMIT
    request, *happened = shown.timeline(execution, events)
    return render.timeline(
        happened[left_out:],
        "orchestrator/admin/timeline.html",
        requested_at=render.moment(request.at, precise=True),
        requested_by=request.actor,
        left_out=left_out,
        limit=HISTORY_LIMIT,
    )
