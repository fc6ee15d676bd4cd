"""One execution, laid out for whoever asks: what is it, where is it, why, and who moves it on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from orchestrator.core import frame, words
from orchestrator.core.admin import render, workers
from orchestrator.core.admin.read_only import Section
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent
from orchestrator.core.reasons import Reason
from orchestrator.core.states import WHO_MOVES_IT_ON, ExecutionStatus

HISTORY_LIMIT = 200

REASONS = {reason.value: reason for reason in Reason}

S = ExecutionStatus
STARTED = {S.RUNNING, S.CANCELING}
# which due time acts in which status; the others have passed or have not begun
ACTS_IN = {
    "next_retry_at": {S.REQUESTED, S.SCHEDULING},
    "start_by": {S.SCHEDULED},
    "run_deadline_at": STARTED,
    "deadline_at": {S.REQUESTED, S.SCHEDULING, S.SCHEDULED, *STARTED},
}


def sections(execution: Execution, now: datetime) -> list[Section]:
    boxes = [
        _situation(execution, now),
        Section(title="Due", facts=_due_times(execution, now), wide=False),
        Section(title="Times", facts=_times(execution, now), wide=False),
        Section(title="History", body=timeline(execution)),
    ]
    entries = DLQEntry.objects.about(execution.pk).without_contents()
    if rows := [_dead_letter(entry) for entry in entries]:
        headers = ["Drained", "Attempt", "Reason", "From queue", "Detail"]
        boxes.append(Section(title="Dead letters", body=render.table(headers, rows)))
    result = "none yet" if execution.result is None else render.result_json(execution.result)
    parameters = render.pretty_json(execution.parameters)
    return [
        *boxes,
        Section(title="Parameters", body=parameters, wide=False),
        Section(title="Result", body=result, wide=False),
        Section(title="Request", facts=_request(execution)),
    ]


def reason_sentence(code: str) -> SafeString | None:
    """The reason's sentence, what is known of the action, and the code to filter by."""
    if not code:
        return None
    reason = REASONS.get(code)
    if reason is None:
        return render.code(code)
    return format_html("{}: {}. {}", reason.text, reason.known.text, render.code(code))


def _situation(execution: Execution, now: datetime) -> Section:
    facts: list[tuple[str, Any]] = [
        ("Execution", render.mono(execution.pk)),
        ("Status", render.state_badge(execution.status)),
        ("Action", render.link_to(execution.action, execution.action_ref)),
        ("Attempt", attempts(execution)),
    ]
    for of_execution in frame.collect(lambda app: app.execution_facts):
        facts += of_execution(execution)
    if execution.reason:
        # an open execution keeps the reason of its last attempt
        name = "Why" if execution.is_terminal else "Last attempt"
        facts.append((name, reason_sentence(execution.reason)))
    if isinstance(execution.result, dict) and (message := execution.result.get("message")):
        facts.append(("Message", render.printable(message)))
    if execution.wait_reason and not execution.is_terminal:
        facts.append(("Waits for", execution.wait_reason))
    facts.append(("Where", where(execution, now)))
    facts.append(("Moved on by", with_code(WHO_MOVES_IT_ON[S(execution.status)])))
    return Section(facts=facts, kind=words.kind_of(execution.status))


def attempts(execution: Execution) -> str:
    """`2, after 1 retry`; no attempt yet is said so."""
    if not execution.attempt:
        return "not dispatched yet"
    retries = execution.retry_count
    if not retries:
        return str(execution.attempt)
    return f"{execution.attempt}, after {retries} {'retry' if retries == 1 else 'retries'}"


def where(execution: Execution, now: datetime) -> SafeString | str:
    worker = execution.worker
    if worker is None:
        return "at no worker"
    return format_html(
        "{} in its life {} {}",
        render.link_to(worker),
        "?" if execution.worker_incarnation is None else execution.worker_incarnation,
        "" if execution.is_terminal else workers.freshness(worker, now),
    )


def with_code(text: str) -> SafeString:
    """The text, its `backticked` words set as code."""
    pattern, replacement = r"`([^`]+)`", r'<code class="m-code">\1</code>'
    return mark_safe(re.sub(pattern, replacement, escape(text)))  # noqa: S308 - escaped before


def _due_times(execution: Execution, now: datetime) -> list[tuple[str, Any]]:
    names = {
        "next_retry_at": "Not scheduled before",
        "start_by": "Start by",
        "run_deadline_at": "Action ends by",
        "deadline_at": "Over by",
    }
    idle = "no longer acts" if execution.is_terminal else "does not act now"
    facts = []
    for field, name in names.items():
        at = getattr(execution, field)
        if at is None:
            continue
        acts = execution.status in ACTS_IN[field]
        if not acts:
            left: str | SafeString = format_html('<span class="m-muted">{}</span>', idle)
        elif field == "next_retry_at" and at <= now:
            left = format_html('<span class="m-muted">has come</span>')
        else:
            left = render.due(at, now)
        facts.append((name, format_html("{} · {}", render.moment(at), left)))
    return facts


def _times(execution: Execution, now: datetime) -> list[tuple[str, Any]]:
    stamps = [
        ("Created", execution.created_at),
        ("Dispatched", execution.scheduled_at),
        ("Started", execution.started_at),
        ("Cancel requested", execution.cancel_requested_at),
        ("Ended", execution.ended_at),
    ]
    facts: list[tuple[str, Any]] = []
    for name, at in stamps:
        if at is None:
            continue
        note = f"+{words.span((at - execution.created_at).total_seconds())}"
        if name == "Created":
            note = f"{words.span((now - at).total_seconds())} ago"
        text = format_html('{} · <span class="m-muted">{}</span>', render.moment(at), note)
        facts.append((name, text))
    if execution.started_at:
        ran = ((execution.ended_at or now) - execution.started_at).total_seconds()
        facts.append(("Ran" if execution.ended_at else "Running for", words.span(ran)))
    return facts


def _request(execution: Execution) -> list[tuple[str, Any]]:
    return [
        ("Requested by", execution.requested_by),
        ("Correlation id", render.search_link(Execution, execution.correlation_id)),
        ("Idempotency key", execution.idempotency_key),
        ("Priority", execution.priority),
        ("Time limit", words.span(execution.timeout_seconds)),
        ("Longest wait in a queue", words.span(execution.dispatch_ttl_ms / 1000)),
        ("Pinned to", render.link_to(execution.pinned_worker)),
        ("Workers with", words.labels(execution.wanted_labels)),
        ("Retry policy", _policy(execution)),
    ]


def _policy(execution: Execution) -> str:
    values = execution.wanted_retries
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _dead_letter(entry: DLQEntry) -> list[Any]:
    return [
        render.link_to(entry, render.moment(entry.dlq_timestamp)),
        entry.attempt,
        render.code(entry.dlq_reason),
        render.printable(entry.original_queue),
        render.printable(entry.detail),
    ]


def timeline(execution: Execution) -> SafeString:
    """Every transition, oldest first, with the time since the one before."""
    newest = ExecutionEvent.objects.filter(execution=execution).order_by("-pk")[: HISTORY_LIMIT + 1]
    events = list(newest)[::-1]
    left_out = len(events) > HISTORY_LIMIT
    context = {
        "created_at": render.moment(execution.created_at, precise=True),
        "requested_by": execution.requested_by,
        "left_out": left_out,
        "limit": HISTORY_LIMIT,
        "events": list(_events(events[left_out:], execution.created_at)),
    }
    return render_to_string("orchestrator/admin/timeline.html", context)


def _events(events: list[ExecutionEvent], previous: datetime) -> Iterator[dict[str, Any]]:
    for event in events:
        yield {
            "event": event,
            "at": render.moment(event.at, precise=True),
            "elapsed": words.span((event.at - previous).total_seconds()),
            "kind": words.kind_of(event.to_status),
            "from": render.state_badge(event.from_status),
            "to": render.state_badge(event.to_status),
            "reason": reason_sentence(event.reason),
        }
        previous = event.at
