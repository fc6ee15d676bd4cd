"""One task and one step, laid out: where it is, what keeps it, what was tried, what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import Case, QuerySet, Value, When
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from orchestrator.core import words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.models import DLQEntry
from orchestrator.workflows.admin import graph_svg
from orchestrator.workflows.models import Step, StepExecution, Task, TransitionRecord
from orchestrator.workflows.shown import graph, secrets, steps
from orchestrator.workflows.states import STEPS, TASKS, StepState, TaskState

STEP_LIMIT = 100
EXECUTION_LIMIT = 50
HISTORY_LIMIT = 200
VERBS = (("reset", "Reset"), ("resolve", "Resolve"), ("complete", "Complete"))
"""What can be done to a step by hand: the names of the admin's actions, and their buttons."""

S = StepState
BY_ATTENTION = (S.ERROR, S.WAITING_FOR_RETRY, S.IN_PROGRESS, S.ENQUEUED_FOR_ORCHESTRATION,
                S.ENQUEUED, S.PENDING)  # fmt: skip
"""What one looks at first, where there are too many steps to show all."""


def of_task(task: Task, now: datetime, *, may_repair: bool) -> list[Section]:
    found = graph.of_task(task)
    shown = graph.folded(found)
    picture = graph_svg.drawn(shown, link=lambda node: _node_url(task, node))
    boxes = [_situation(task, now), Section(title=_graph_title(found), body=picture)]
    if found.is_made:
        total = sum(found.states.values())
        # whatever is in error when its task is over stays so
        boxes.append(_steps(task, total, now, may_repair=may_repair and not task.is_terminal))
        boxes.append(_executions(task))
    entries = DLQEntry.objects.about(task.pk).without_contents()
    if rows := [_entry(entry) for entry in entries[:HISTORY_LIMIT]]:
        headers = ["Opened", "Reason", "Resolution", "Detail"]
        boxes.append(Section(title="DLQ entries", body=render.table(headers, rows)))
    records = TransitionRecord.objects.filter(task=task)
    return [
        *boxes,
        Section(title="Timeline", body=timeline(records, task, f"/api/v1/tasks/{task.pk}/audit")),
        Section(title="Context", body=render.pretty_json(secrets.context(task)), wide=False),
        Section(title="Request", facts=_request(task), wide=False),
    ]


def of_step(step: Step, now: datetime) -> list[Section]:
    (view,) = steps.views([step], now=now)
    task = step.task
    tries = steps.executions_of(step)
    result = secrets.result(step, task.template)
    audit = f"/api/v1/tasks/{task.pk}/workflow_steps/{step.pk}/audit"
    boxes = [
        Section(facts=_step_facts(view, now), kind=words.kind_of(step.state)),
        Section(
            title="Executions",
            body=_tries([(step, each) for each in tries]) if tries else "none yet",
        ),
        Section(
            title="Result",
            body="none" if step.result is None else render.result_json(result),
            wide=step.error is None,
        ),
    ]
    if step.error is not None:
        error = render.result_json(secrets.error(step))
        boxes.append(Section(title="Error of its last attempt", body=error, wide=False))
    records = TransitionRecord.objects.filter(step=step)
    return [*boxes, Section(title="Timeline", body=timeline(records, None, audit))]


def timeline(records: QuerySet[TransitionRecord], task: Task | None, audit: str) -> SafeString:
    """Transitions, oldest first, each with the time since the one before; of many the last."""
    newest = records.select_related("step").only(
        "event", "from_state", "to_state", "actor", "reason", "processor", "at", "step__name"
    )
    found = list(newest.order_by("-pk")[: HISTORY_LIMIT + 1])[::-1]
    left_out = len(found) > HISTORY_LIMIT
    begun = task.created_at if task else None
    context = {
        "left_out": left_out,
        "limit": HISTORY_LIMIT,
        "audit": audit,
        "requested_at": render.moment(begun, precise=True),
        "requested_by": task.requested_by if task else "",
        "records": list(_records(found[left_out:], begun)),
    }
    return render_to_string("workflows/admin/transitions.html", context)


def step_list_url(task: Task, **filters: str) -> str:
    """The list of the task's steps."""
    base = reverse("admin:workflows_step_changelist")
    return f"{base}?{urlencode({'task': str(task.pk)} | filters)}"


def verbs_of(step: Step) -> list[tuple[str, str]]:
    """Of `VERBS` those that are possible where the step is now."""
    if step.is_terminal:
        return []
    return [(verb, text) for verb, text in VERBS if verb != "reset" or step.state != S.PENDING]


def step_buttons(step: Step) -> SafeString | str:
    """A button for each thing that can be done to it by hand; each opens a dialog."""
    buttons = [
        (reverse(f"admin:workflows_step_{verb}", args=[step.pk]), text)
        for verb, text in verbs_of(step)
    ]
    if not buttons:
        return ""
    return format_html(
        '<span class="m-buttons">{}</span>',
        format_html_join(
            "",
            '<a class="m-button" hx-get="{}" hx-target="#modal-content" hx-select="#dialog" '
            'x-on:htmx:after-on-load="openModal = true">{}</a>',
            buttons,
        ),
    )


# --- a task's parts ------------------------------------------------------------------------------


def _situation(task: Task, now: datetime) -> Section:
    state = TaskState(task.state)
    facts: list[tuple[str, Any]] = [
        ("Task", render.mono(task.pk)),
        ("Template", render.link_to(task.template)),
        ("State", render.state_badge(state)),
        (
            "In it for" if not task.is_terminal else "Since",
            format_html(
                "{} · {}",
                words.span((now - task.state_entered_at).total_seconds()),
                render.moment(task.state_entered_at),
            ),
        ),
        ("Moved on by", render.with_code(TASKS.who_moves_it_on[state])),
    ]
    if task.next_retry_at:
        due = render.due(task.next_retry_at, now)
        facts.append(
            ("Next attempt", format_html("{} · {}", render.moment(task.next_retry_at), due))
        )
    if state in (TaskState.BLOCKED_BY_FAILURES, TaskState.ERROR):
        failed = steps.standing_in_the_way(task)
        links = format_html_join(", ", "{}", ((render.link_to(s, s.name),) for s in failed))
        facts.append(("Blocked by", links or "none of its steps"))
    end = task.ended_at or now
    facts.append(("Took" if task.ended_at else "Age", _seconds(task.created_at, end)))
    return Section(facts=facts, kind=words.kind_of(state))


def _graph_title(found: graph.Graph) -> str:
    if not found.is_made:
        return "Graph, as its template has it: no step is made yet"
    total = sum(found.states.values())
    return f"Graph: {total:,} {'step' if total == 1 else 'steps'}"


def _node_url(task: Task, node: graph.Node) -> str:
    if node.id is not None:
        return reverse("admin:workflows_step_change", args=[node.id])
    if node.count > 1 and node.template_step and node.states:
        return step_list_url(task, template_step=node.template_step)
    return ""


def _steps(task: Task, total: int, now: datetime, *, may_repair: bool) -> Section:
    rows = Step.objects.filter(task=task).without_contents()
    if total > STEP_LIMIT:
        order = [When(state=state, then=Value(n)) for n, state in enumerate(BY_ATTENTION)]
        rows = rows.order_by(Case(*order, default=Value(len(order))), "pk")
    views = steps.views(list(rows[:STEP_LIMIT]), now=now)
    headers = ["Step", "State", "Attempts", "Blocked by", "Latest run", "In it for", ""]
    body = render.table(
        headers if may_repair else headers[:-1],
        (_step_row(view, now, may_repair=may_repair) for view in views),
    )
    if total > STEP_LIMIT:
        link = render.link(step_list_url(task), f"All {total:,} steps")
        told = "those that need attention first"
        body = format_html(
            '{}<p class="m-foot">{} of them, {}. {}</p>', body, STEP_LIMIT, told, link
        )
    return Section(title="Steps", body=body)


def _step_row(view: steps.StepView, now: datetime, *, may_repair: bool) -> list[Any]:
    step = view.step
    latest = None
    if step.execution_id is not None:
        url = reverse("admin:orchestrator_execution_change", args=[step.execution_id])
        latest = render.link(url, render.mono(f"…{str(step.execution_id)[-8:]}"))
    cells = [
        render.link_to(step, step.name),
        render.state_badge(step.state),
        attempts(step),
        format_html('<span class="m-anywhere">{}</span>', view.blocked_by or "-"),
        latest,
        "" if step.ended_at else _unbroken(_seconds(step.state_entered_at, now)),
    ]
    return [*cells, step_buttons(step) or " "] if may_repair else cells


def _executions(task: Task) -> Section:
    heavy = ("execution__parameters", "execution__result", "step__result", "step__error")
    newest = (
        StepExecution.objects.filter(step__task=task)
        .select_related("execution__worker", "step")
        .defer(*heavy)
        .order_by("-execution_id")[: EXECUTION_LIMIT + 1]
    )
    found = list(newest)
    if not found:
        return Section(title="Executions", body="none yet")
    more = len(found) > EXECUTION_LIMIT
    title = f"Executions: the last {EXECUTION_LIMIT}" if more else "Executions"
    return Section(title=title, body=_tries((e.step, e) for e in found[:EXECUTION_LIMIT]))


def _tries(tries: Iterable[tuple[Step, StepExecution]]) -> SafeString:
    headers = ["Execution", "Step", "Action", "Status", "Reason", "Worker", "Created", "Ran"]
    return render.table(headers, (_try(step, each) for step, each in tries))


def _try(step: Step, each: StepExecution) -> Sequence[Any]:
    execution = each.execution
    ran = ""
    if execution.started_at and execution.ended_at:
        ran = _unbroken(_seconds(execution.started_at, execution.ended_at))
    return (
        render.link_to(execution, render.short_id(execution.pk)),
        step.name,
        render.code(execution.action_ref),
        render.state_badge(execution.status),
        execution.reason,
        execution.worker.name if execution.worker else None,
        render.moment(execution.created_at),
        ran,
    )


def _entry(entry: DLQEntry) -> list[Any]:
    return [
        render.link_to(entry, render.moment(entry.dlq_timestamp)),
        render.code(entry.dlq_reason),
        entry.resolution_status,
        render.printable(entry.detail),
    ]


def _request(task: Task) -> list[tuple[str, Any]]:
    return [
        ("Requested by", task.requested_by),
        ("Initiator", task.initiator),
        ("Source system", task.source_system),
        ("Why", render.printable(task.reason)),
        ("Tags", ", ".join(map(str, task.tags))),
        ("Priority", task.priority),
        ("Environment", task.environment),
        ("Correlation id", render.search_link(Task, task.correlation_id)),
        ("Parent correlation id", task.parent_correlation_id),
        ("Idempotency key", task.idempotency_key),
        ("Created", render.moment(task.created_at)),
        ("Ended", render.moment(task.ended_at)),
    ]


# --- a step's parts ------------------------------------------------------------------------------


def attempts(step: Step) -> str:
    return f"{step.attempts}/{step.max_attempts}"


def _step_facts(view: steps.StepView, now: datetime) -> list[tuple[str, Any]]:
    step = view.step
    waits = format_html_join(
        ", ", "{} {}", ((each.name, render.state_badge(each.state)) for each in view.waits_for)
    )
    facts: list[tuple[str, Any]] = [
        ("Step", format_html("{} · {}", step.name, render.mono(step.pk))),
        ("Task", render.link_to(step.task, render.mono(step.task_id))),
        ("State", render.state_badge(step.state)),
        ("In it for", words.span((now - step.state_entered_at).total_seconds())),
        ("Moved on by", render.with_code(STEPS.who_moves_it_on[S(step.state)])),
        ("Attempts", attempts(step) + ("" if step.retryable else ", not retryable")),
        ("Kind", step.kind),
    ]
    if view.waits_for_count:
        more = view.waits_for_count - len(view.waits_for)
        facts.append(
            ("Waits for", format_html("{}{}", waits, f" and {more:,} more" if more else ""))
        )
    elif view.blocked_by:
        facts.append(("Blocked by", view.blocked_by))
    if view.ready_for_execution:
        facts.append(("Ready", "yes: it is enqueued when its task is advanced"))
    if step.next_retry_at:
        due = render.due(step.next_retry_at, now)
        facts.append(
            ("Next attempt", format_html("{} · {}", render.moment(step.next_retry_at), due))
        )
    if step.last_failure_at:
        facts.append(("Last failed", render.moment(step.last_failure_at)))
    if step.batch:
        facts.append(("Its part", render.pretty_json(step.batch)))
    if step.created_by_id:
        url = reverse("admin:workflows_step_change", args=[step.created_by_id])
        facts.append(("Created by", render.link(url, "another step")))
    return facts


def _records(
    found: Sequence[TransitionRecord], previous: datetime | None
) -> Iterator[dict[str, Any]]:
    for record in found:
        elapsed = (record.at - previous).total_seconds() if previous else 0
        yield {
            "at": render.moment(record.at, precise=True),
            "elapsed": words.span(elapsed),
            "kind": words.kind_of(record.to_state),
            "step": record.step.name if record.step else "",
            "event": record.event,
            "from": render.state_badge(record.from_state),
            "to": render.state_badge(record.to_state),
            "actor": record.actor,
            "processor": record.processor,
            "reason": render.printable(record.reason),
        }
        previous = record.at


def _unbroken(text: str) -> SafeString:
    return format_html('<span class="whitespace-nowrap">{}</span>', text)


def _seconds(start: datetime, end: datetime) -> str:
    return words.span((end - start).total_seconds())
