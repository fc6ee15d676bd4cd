"""Tasks and steps in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from rich.console import RenderableType
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.management import output
from orchestrator.core.management.tables import Table
from orchestrator.workflows import engine
from orchestrator.workflows.models import (
    Step,
    StepExecution,
    Task,
    TaskStaleness,
    TaskTemplate,
    TransitionRecord,
)
from orchestrator.workflows.shown import graph, secrets, steps
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.states import StepState
from orchestrator.workflows.task_templates import TemplateDefinition

ACTIONS = {
    engine.Action.TRANSITIONED_TO_DLQ_AND_ERROR: "entry opened, moved to error",
    engine.Action.MOVED_TO_DLQ_ONLY: "entry opened",
    engine.Action.TRANSITIONED_TO_ERROR_ONLY: "moved to error",
    engine.Action.LEFT_ALONE: "nothing: it has an entry meanwhile",
    engine.Action.WOULD_TRANSITION_TO_DLQ_AND_ERROR: "open an entry, move it to error",
    engine.Action.WOULD_MOVE_TO_DLQ_ONLY: "open an entry",
    engine.Action.WOULD_TRANSITION_TO_ERROR_ONLY: "move it to error",
}

STEPS_SHOWN = 100
"""The most steps on a task's page; `task steps` shows all."""


def staleness(rows: Sequence[TaskStaleness]) -> Table:
    table = Table("task", "health", ">used", ">in state", ">of", "state", "template")
    for row in rows:
        table.add_row(
            str(row.task_uuid),
            output.status(row.health_status),
            f"{row.threshold_percentage:,.0f} %",
            words.span(row.time_in_state_minutes * 60),
            words.span(row.staleness_threshold_minutes * 60),
            row.current_state,
            output.plain(f"{row.namespace_name}/{row.task_name}"),
        )
    return table


def stale(found: Sequence[shown.TaskStale], *, done: str) -> Table:
    """A row each. `done` heads the column of the actions."""
    table = Table("task", "template", "state", ">overdue", done, "*because")
    for each in found:
        table.add_row(
            str(each.task_uuid),
            output.line(f"{each.namespace_name}/{each.task_name}/{each.template_version}"),
            output.status(each.current_state),
            words.span(each.overdue_minutes * 60),
            ACTIONS[each.action_taken],
            output.line(each.detail),
        )
    return table


def tasks(
    rows: Sequence[Task],
    counts: Mapping[UUID, Counter[StepState]],
    now: datetime,
    *,
    seen_by: Principal,
) -> Table:
    """A row each. `took`: its age while it is open."""
    table = Table("id", "created", "template", "state", ">steps", ">took", "*failed step")
    failures = steps.failures((task.pk for task in rows if not task.is_terminal), seen_by=seen_by)
    for task in rows:
        took = ((task.ended_at or now) - task.created_at).total_seconds()
        table.add_row(
            str(task.pk),
            output.moment(task.created_at)[output.YEAR :],
            output.line(task.template.ref),
            output.status(task.state),
            shown.progress(counts[task.pk]),
            words.span(took),
            output.line(failures.get(task.pk, "")),
        )
    return table


def steps_table(views: Sequence[steps.StepView], now: datetime) -> Table:
    """A row each. `blocked by` names dependencies that are not satisfied; `task step` has all."""
    headings = ("step", "state", ">tries", ">for", "*blocked by")
    table = Table(*headings, "id", "ready", "retry eligible")
    for view in views:
        step = view.step
        there = "" if step.ended_at else words.span((now - step.state_entered_at).total_seconds())
        table.add_row(
            output.plain(step.name),
            output.status(step.state),
            steps.attempts(step),
            there,
            output.plain(_blocked_by(view, now)),
            str(step.pk),
            "yes" if view.ready_for_execution else "",
            "yes" if view.retry_eligible else "",
        )
    return table


def repaired(
    views: Sequence[steps.StepView], now: datetime, *, reason: str, actor: str, named: str | None
) -> Iterator[RenderableType]:
    """The steps after a repair: their new states, why, and who did it."""
    yield steps_table(views, now)
    yield output.facts([("Reason", reason), ("By", actor), ("On behalf of", named or "")])


def task_page(task: Task, now: datetime, *, seen_by: Principal) -> Iterator[RenderableType]:
    """The page of one task: its situation, steps, context and request."""
    counts = steps.counts([task.pk])[task.pk]
    yield output.facts(shown.situation(task, counts, now))
    rows = list(Step.objects.without_contents().filter(task=task).order_by("pk")[:STEPS_SHOWN])
    if rows:
        yield _heading("Steps")
        yield steps_table(steps.views(rows, now=now, seen_by=seen_by), now)
        left = sum(counts.values()) - len(rows)
        if left > 0:
            yield Text(f"{left:,} more: manage.py task steps {task.pk} --state error")
    yield _heading("Context")
    yield output.pretty(secrets.context(task, seen_by=seen_by))
    yield _heading("Request")
    yield output.facts(shown.request(task))


def step_page(
    view: steps.StepView, now: datetime, *, seen_by: Principal
) -> Iterator[RenderableType]:
    """The page of one step: its situation, executions, result and history."""
    step = view.step
    yield output.facts(steps.situation(view, now))
    tries = steps.executions_of(step)
    if tries:
        yield _heading("Executions")
        yield _executions(tries)
    if step.error is not None:
        yield _heading("Error of its last attempt")
        yield output.pretty(secrets.error(step, seen_by=seen_by))
    yield _heading("Result")
    result = secrets.result(step, step.task.template, seen_by=seen_by)
    yield output.pretty(result) if step.result is not None else Text("none")
    yield _heading("History")
    records = TransitionRecord.objects.filter(step=step).select_related("step").order_by("pk")
    yield output.timeline(steps.timeline(list(records)))


def graph_page(shown_graph: graph.Graph) -> Iterator[RenderableType]:
    """Each step below the steps that it waits for."""
    if not shown_graph.is_made:
        yield Text("The graph of its template: no step is created yet.", style="bright_black")
    table = Table("step", "kind", "state", ">tries", "*after")
    for name in _in_order(shown_graph):
        node = shown_graph.nodes[name]
        table.add_row(
            output.plain(name),
            node.kind,
            _states(node),
            f"{node.attempts}/{node.max_attempts}" if node.count == 1 else "",
            output.plain(", ".join(shown_graph.parents[name])),
        )
    yield table


def templates(rows: Sequence[TaskTemplate]) -> Table:
    table = Table("template", "pack", "state", "*description")
    for template in rows:
        table.add_row(
            output.plain(template.ref),
            template.pack.name if template.pack else "",
            "" if template.enabled else Text("disabled", style="red"),
            output.plain(template.description),
        )
    return table


def template_page(definition: TemplateDefinition) -> Iterator[RenderableType]:
    """The page of a template, step by step."""
    table = Table("step", "kind", "*action", ">tries", "*after", "*when")
    for step in definition.steps.values():
        table.add_row(
            step.name,
            step.kind,
            step.action_ref,
            str(step.retry.max_attempts if step.retry.retryable else 1),
            ", ".join(step.parents),
            output.plain("" if step.when is True else step.when),
        )
    yield table


def _blocked_by(view: steps.StepView, now: datetime) -> str:
    due = view.step.next_retry_at
    if view.step.state == StepState.WAITING_FOR_RETRY and due is not None and due > now:
        return f"its backoff: in {words.span((due - now).total_seconds())}"
    return view.blocked_by


def _executions(tries: Sequence[StepExecution]) -> Table:
    table = Table("id", "*action", "status", "*worker", ">ran", "*reason")
    for each in tries:
        execution = each.execution
        started, ended = execution.started_at, execution.ended_at
        table.add_row(
            str(execution.pk),
            output.plain(execution.action_ref),
            output.status(execution.status),
            output.plain(execution.worker_name or ""),
            words.span((ended - started).total_seconds()) if started and ended else "",
            output.plain(execution.reason),
        )
    return table


def _states(node: graph.Node) -> Text:
    if not node.states:
        return Text("not created", style="bright_black")
    if node.state is not None and node.count == 1:
        return output.status(node.state)
    each = (Text(f"{count:,} ") + output.status(state) for state, count in node.states.items())
    return Text(", ").join(each)


def _in_order(shown: graph.Graph) -> Iterator[str]:
    """Names, parents first; in a cycle, in any order."""
    left = dict.fromkeys(shown.nodes)
    while left:
        free = [n for n in left if not any(p in left for p in shown.parents[n])] or [
            next(iter(left))
        ]
        for name in free:
            del left[name]
        yield from free


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
