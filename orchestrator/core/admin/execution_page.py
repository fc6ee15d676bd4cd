"""The page of one execution: its situation, times, history, parameters and result."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from django.utils.safestring import SafeString

from orchestrator.core import words
from orchestrator.core.admin import live_output, render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.authority import Principal
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent
from orchestrator.core.shown import executions as shown


def sections(execution: Execution, now: datetime, *, seen_by: Principal) -> list[Section]:
    """The boxes of an execution's page."""
    situation = render.facts(shown.situation(execution, now, seen_by=seen_by))
    boxes = [
        Section(facts=situation, kind=words.kind_of(execution.status)),
        Section(title="Due", facts=render.facts(shown.due(execution, now)), wide=False),
        Section(title="Times", facts=render.facts(shown.times(execution, now)), wide=False),
        Section(title="History", body=_history(execution)),
    ]
    if rows := [_dead_letter(entry) for entry in shown.letters(execution)]:
        headers = ["Drained", "Attempt", "Reason", "From queue", "Detail"]
        boxes.append(Section(title="Dead letters", body=render.table(headers, rows)))
    if execution.attempt and (output := live_output.box(execution, seen_by=seen_by)):
        boxes.append(Section(title="Output", body=output))
    result = shown.result(execution, seen_by=seen_by)
    parameters = render.pretty_json(shown.parameters(execution, seen_by=seen_by))
    boxes += [_brought(content) for content in shown.brought(execution, seen_by=seen_by)]
    return [
        *boxes,
        Section(title="Parameters", body=parameters, wide=False),
        Section(
            title="Result",
            body="none yet" if result is None else render.result_json(result),
            wide=False,
        ),
        Section(title="Request", facts=render.facts(shown.request(execution))),
    ]


def _brought(content: shown.Content) -> Section:
    body = "" if content.value is None else render.pretty_json(content.value)
    return Section(title=content.title, facts=render.facts(content.facts), body=body, wide=False)


def _dead_letter(entry: DLQEntry) -> list[Any]:
    return [
        render.link_to(entry, render.moment(entry.dlq_timestamp)),
        entry.attempt,
        render.code(entry.dlq_reason),
        render.printable(entry.original_queue),
        render.printable(entry.detail),
    ]


def _history(execution: Execution) -> SafeString:
    events = ExecutionEvent.objects.filter(execution=execution)
    return render.timeline(
        events, partial(shown.timeline, execution), f"/api/v1/executions/{execution.pk}"
    )
