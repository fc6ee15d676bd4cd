"""The pages of a task and of a step: situation, graph, executions, timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from orchestrator.core import authority, words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import Section
from orchestrator.core.authority import Principal
from orchestrator.core.models import DLQEntry
from orchestrator.core.shown import investigations
from orchestrator.workflows import engine
from orchestrator.workflows.admin import graph_box
from orchestrator.workflows.models import Step, StepExecution, Task, TransitionRecord
from orchestrator.workflows.shown import graph, secrets, steps
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.states import StepState

STEP_LIMIT = 100
EXECUTION_LIMIT = 50
ENTRY_LIMIT = 200
VERBS = (
    ("reset", "Reset"),
    ("resolve", "Resolve"),
    ("complete", "Complete"),
    ("cancel", "Cancel"),
)
"""Repairs of a step: the names of the admin's actions, and the texts of their buttons."""

S = StepState


def of_task(task: Task, now: datetime, *, seen_by: Principal) -> list[Section]:
    task_graph = graph.of_task(task)
    picture = graph_box.drawn(graph.piled(task_graph), link=lambda node: _node_url(task, node))
    counts = steps.counts([task.pk])[task.pk]
    situation = render.facts(shown.situation(task, counts, now))
    boxes = [
        Section(facts=situation, kind=words.kind_of(task.state)),
        Section(title=_graph_title(task_graph), body=picture),
    ]
    if task_graph.is_made:
        total = sum(task_graph.states.values())
        # a step that is in error when its task ends stays in error
        boxes.append(_steps(task, total, now, seen_by))
        boxes.append(_executions(task))
    entries = DLQEntry.objects.about(task.pk).without_contents()
    if rows := [_entry(entry, seen_by) for entry in entries[:ENTRY_LIMIT]]:
        headers = ["Opened", "Reason", "Resolution", "Detail"]
        boxes.append(Section(title="DLQ entries", body=render.table(headers, rows)))
    records = TransitionRecord.objects.filter(task=task)
    return [
        *boxes,
        _timeline(records, f"/api/v1/tasks/{task.pk}/audit", task),
        Section(
            title="Context",
            body=render.pretty_json(secrets.context(task, seen_by=seen_by)),
            wide=False,
        ),
        Section(title="Request", facts=render.facts(shown.request(task)), wide=False),
    ]


def of_step(step: Step, now: datetime, *, seen_by: Principal) -> list[Section]:
    (view,) = steps.views([step], now=now, seen_by=seen_by)
    task = step.task
    tries = steps.executions_of(step)
    result = secrets.result(step, task.template, seen_by=seen_by)
    audit = f"/api/v1/tasks/{task.pk}/workflow_steps/{step.pk}/audit"
    boxes = [
        Section(facts=render.facts(steps.situation(view, now)), kind=words.kind_of(step.state)),
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
        error = render.result_json(secrets.error(step, seen_by=seen_by))
        boxes.append(Section(title="Error of its last attempt", body=error, wide=False))
    records = TransitionRecord.objects.filter(step=step)
    return [*boxes, _timeline(records, audit)]


def step_list_url(task: Task, **filters: str) -> str:
    """The URL of the list of the task's steps."""
    base = reverse("admin:workflows_step_changelist")
    return f"{base}?{urlencode({'task': str(task.pk)} | filters)}"


def verbs_of(step: Step) -> list[tuple[str, str]]:
    """The `VERBS` that are possible in the state of the step."""
    possible = engine.possible(step)
    return [(verb, text) for verb, text in VERBS if verb in possible]


def step_buttons(step: Step) -> SafeString | str:
    """A button for each possible repair; each opens a dialog."""
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


def _timeline(records: QuerySet[TransitionRecord], api: str, task: Task | None = None) -> Section:
    rows = records.select_related("step").only(
        "event", "from_state", "to_state", "actor", "reason", "processor", "at", "step__name"
    )
    return Section(
        title="Timeline", body=render.timeline(rows, partial(steps.timeline, task=task), api)
    )


# --- a task's parts ------------------------------------------------------------------------------


def _graph_title(shown_graph: graph.Graph) -> str:
    if not shown_graph.is_made:
        return "Graph of its template: no step is created yet"
    total = sum(shown_graph.states.values())
    return f"Graph: {total:,} {'step' if total == 1 else 'steps'}"


def _node_url(task: Task, node: graph.Node) -> str:
    if node.id is not None:
        return reverse("admin:workflows_step_change", args=[node.id])
    if node.count > 1 and node.template_step and node.states:
        return step_list_url(task, template_step=node.template_step)
    return ""


def _steps(task: Task, total: int, now: datetime, seen_by: Principal) -> Section:
    may_repair = not task.is_terminal and authority.may(seen_by, "steps.repair", task.place)
    rows = Step.objects.filter(task=task).without_contents()
    if total > STEP_LIMIT:
        rows = steps.by_attention(rows)
    views = steps.views(list(rows[:STEP_LIMIT]), now=now, seen_by=seen_by)
    headers = ["Step", "State", "Attempts", "Blocked by", "Latest run", "In state for", ""]
    body = render.table(
        headers if may_repair else headers[:-1],
        (_step_row(view, now, may_repair=may_repair) for view in views),
    )
    if total > STEP_LIMIT:
        link = render.link(step_list_url(task), f"All {total:,} steps")
        body = format_html(
            '{}<p class="m-foot">{} steps, those that need attention first. {}</p>',
            body,
            STEP_LIMIT,
            link,
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
        steps.attempts(step),
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
    tries = list(newest)
    if not tries:
        return Section(title="Executions", body="none yet")
    more = len(tries) > EXECUTION_LIMIT
    title = f"Executions: the last {EXECUTION_LIMIT}" if more else "Executions"
    return Section(title=title, body=_tries((e.step, e) for e in tries[:EXECUTION_LIMIT]))


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
        execution.worker_name,
        render.moment(execution.created_at),
        ran,
    )


def _entry(entry: DLQEntry, seen_by: Principal) -> list[Any]:
    return [
        render.link_to(entry, render.moment(entry.dlq_timestamp)),
        render.code(entry.dlq_reason),
        entry.resolution_status,
        render.printable(investigations.detail(entry, seen_by=seen_by)),
    ]


def _unbroken(text: str) -> SafeString:
    return format_html('<span class="whitespace-nowrap">{}</span>', text)


def _seconds(start: datetime, end: datetime) -> str:
    return words.span((end - start).total_seconds())
