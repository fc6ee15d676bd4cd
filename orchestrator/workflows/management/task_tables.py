"""Tasks and steps as a terminal shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core import words
from orchestrator.core.management import output
from orchestrator.core.management.execution_view import ID_SHOWN
from orchestrator.workflows.models import (
    Step,
    StepExecution,
    Task,
    TaskStaleness,
    TaskTemplate,
    TransitionRecord,
)
from orchestrator.workflows.shown import graph, secrets, steps
from orchestrator.workflows.states import STEPS, TASKS, StepState, TaskState
from orchestrator.workflows.states.steps import SATISFIED
from orchestrator.workflows.task_templates import TemplateDefinition

STEPS_SHOWN = 100
"""On a task's page; `task steps` shows all."""


def staleness(rows: Sequence[TaskStaleness]) -> Table:
    made = output.table("task", "health", ">used", ">there for", ">of", "state", "*what")
    for row in rows:
        limit = row.staleness_threshold_minutes
        made.add_row(
            str(row.task_uuid)[:ID_SHOWN],
            output.status(row.health_status),
            f"{100 * row.used:,.0f} %",
            words.span(row.time_in_state_minutes * 60),
            "" if limit is None else words.span(limit * 60),
            row.current_state,
            output.plain(f"{row.namespace}/{row.task_name}"),
        )
    return made


def tasks(rows: Sequence[Task], counts: Mapping[UUID, Counter[StepState]], now: datetime) -> Table:
    made = output.table("id", "*template", "state", ">steps", ">took")
    for task in rows:
        took = ((task.ended_at or now) - task.created_at).total_seconds()
        made.add_row(
            str(task.pk)[:ID_SHOWN],
            output.plain(task.template.ref),
            output.status(task.state),
            _progress(counts[task.pk]),
            words.span(took),
        )
    return made


def steps_table(views: Sequence[steps.StepView], now: datetime) -> Table:
    made = output.table("step", "state", ">tries", ">for", "*blocked by")
    for view in views:
        step = view.step
        there = "" if step.ended_at else words.span((now - step.state_entered_at).total_seconds())
        made.add_row(
            output.plain(step.name),
            output.status(step.state),
            _tries(step),
            there,
            output.plain(_blocked_by(view, now)),
        )
    return made


def task_page(task: Task, now: datetime) -> Iterator[RenderableType]:
    """One task: where it is and why, its steps, what it was given."""
    counts = steps.counts([task.pk])[task.pk]
    yield output.facts(_situation(task, counts, now))
    shown = list(Step.objects.without_contents().filter(task=task).order_by("pk")[:STEPS_SHOWN])
    if shown:
        yield _heading("Steps")
        yield steps_table(steps.views(shown, now=now), now)
        left = sum(counts.values()) - len(shown)
        if left > 0:
            yield Text(f"{left:,} more: manage.py task steps {task.pk} --state error")
    yield _heading("Context")
    yield output.pretty(secrets.context(task))


def step_page(view: steps.StepView, now: datetime) -> Iterator[RenderableType]:
    """One step: where it is and why, what was tried, what came of it."""
    step, blocked_by = view.step, _blocked_by(view, now)
    yield output.facts(
        [
            ("step", output.plain(f"{step.name}  {step.pk}")),
            ("task", str(step.task_id)),
            ("state", output.status(step.state)),
            ("moved on by", STEPS.who_moves_it_on[StepState(step.state)]),
            ("attempts", _tries(step) + ("" if step.retryable else ", not retryable")),
            ("kind", step.kind),
            ("blocked by", output.plain(blocked_by) if blocked_by else None),
            ("ready", "yes" if view.ready_for_execution else ""),
            ("next attempt", _due(step.next_retry_at, now)),
            ("last failed", output.moment(step.last_failure_at)),
            ("its part", output.pretty(step.batch) if step.batch else None),
        ]
    )
    tries = steps.executions_of(step)
    if tries:
        yield _heading("Executions")
        yield _executions(tries)
    if step.error is not None:
        yield _heading("Error of its last attempt")
        yield output.pretty(secrets.error(step))
    yield _heading("Result")
    result = secrets.result(step, step.task.template)
    yield output.pretty(result) if step.result is not None else Text("none")
    yield _heading("History")
    records = TransitionRecord.objects.filter(step=step).select_related("step").order_by("pk")
    yield timeline(list(records))


def timeline(records: Sequence[TransitionRecord]) -> Table:
    made = output.table("at", "step", "event", "to", "*by", "*reason")
    for record in records:
        made.add_row(
            output.moment(record.at, precise=True)[5:],
            output.plain(record.step.name if record.step else ""),
            record.event,
            output.status(record.to_state),
            output.plain(record.actor),
            output.plain(record.reason),
        )
    return made


def graph_page(shown: graph.Graph) -> Iterator[RenderableType]:
    """Each step below all that it waits for."""
    if not shown.is_made:
        yield Text("As its template has it: no step is made yet.", style="bright_black")
    made = output.table("step", "kind", "state", ">tries", "*after")
    for name in _in_order(shown):
        node = shown.nodes[name]
        made.add_row(
            output.plain(name),
            node.kind,
            _states(node),
            f"{node.attempts}/{node.max_attempts}" if node.count == 1 else "",
            output.plain(", ".join(shown.parents[name])),
        )
    yield made


def templates(rows: Sequence[TaskTemplate]) -> Table:
    made = output.table("template", "pack", "", "*description")
    for template in rows:
        made.add_row(
            output.plain(template.ref),
            template.pack.name if template.pack else "",
            "" if template.enabled else Text("disabled", style="red"),
            output.plain(template.description),
        )
    return made


def template_page(definition: TemplateDefinition) -> Iterator[RenderableType]:
    """What a template says, step by step."""
    made = output.table("step", "kind", "*action", ">tries", "*after", "*when")
    for step in definition.steps.values():
        made.add_row(
            step.name,
            step.kind,
            step.action_ref,
            str(step.retry.max_attempts if step.retry.retryable else 1),
            ", ".join(step.parents),
            output.plain("" if step.when is True else step.when),
        )
    yield made


def _situation(
    task: Task, counts: Mapping[StepState, int], now: datetime
) -> list[tuple[str, RenderableType | None]]:
    failed = [step.name for step in steps.standing_in_the_way(task)]
    in_it = words.span((now - task.state_entered_at).total_seconds())
    ended = task.ended_at or now
    return [
        ("task", str(task.pk)),
        ("template", output.plain(task.template.ref)),
        ("state", output.status(task.state) + Text(f"  for {in_it}")),
        ("moved on by", TASKS.who_moves_it_on[TaskState(task.state)]),
        ("steps done", _progress(counts)),
        ("blocked by", output.plain(", ".join(failed)) if failed else None),
        ("next attempt", _due(task.next_retry_at, now)),
        (
            "took" if task.ended_at else "age",
            words.span((ended - task.created_at).total_seconds()),
        ),
        ("requested by", output.plain(task.requested_by)),
        ("initiator", output.plain(task.initiator) if task.initiator else None),
        ("source system", output.plain(task.source_system) if task.source_system else None),
        ("why", output.plain(task.reason) if task.reason else None),
        ("tags", output.plain(", ".join(task.tags)) if task.tags else None),
        ("priority", str(task.priority or "")),
        ("correlation id", output.plain(task.correlation_id) if task.correlation_id else None),
        ("idempotency key", output.plain(task.idempotency_key) if task.idempotency_key else None),
    ]


def _blocked_by(view: steps.StepView, now: datetime) -> str:
    due = view.step.next_retry_at
    if view.step.state == StepState.WAITING_FOR_RETRY and due is not None and due > now:
        return f"its backoff: in {words.span((due - now).total_seconds())}"
    return view.blocked_by


def _executions(tries: Sequence[StepExecution]) -> Table:
    made = output.table("id", "*action", "status", "*worker", ">ran", "*reason")
    for each in tries:
        execution = each.execution
        started, ended = execution.started_at, execution.ended_at
        made.add_row(
            str(execution.pk)[:ID_SHOWN],
            output.plain(execution.action_ref),
            output.status(execution.status),
            output.plain(execution.worker.name if execution.worker else ""),
            words.span((ended - started).total_seconds()) if started and ended else "",
            output.plain(execution.reason),
        )
    return made


def _progress(counts: Mapping[StepState, int]) -> str:
    total = sum(counts.values())
    return f"{sum(counts.get(s, 0) for s in SATISFIED):,}/{total:,}" if total else "-"


def _tries(step: Step) -> str:
    return f"{step.attempts}/{step.max_attempts}"


def _states(node: graph.Node) -> Text:
    if not node.states:
        return Text("not made", style="bright_black")
    if node.state is not None and node.count == 1:
        return output.status(node.state)
    each = (Text(f"{count:,} ") + output.status(state) for state, count in node.states.items())
    return Text(", ").join(each)


def _in_order(shown: graph.Graph) -> Iterator[str]:
    """Parents first; in a cycle whatever comes."""
    left = dict.fromkeys(shown.nodes)
    while left:
        free = [n for n in left if not any(p in left for p in shown.parents[n])] or [
            next(iter(left))
        ]
        for name in free:
            del left[name]
        yield from free


def _due(at: datetime | None, now: datetime) -> Text | None:
    return Text(f"{output.moment(at)} UTC  ") + output.due(at, now) if at else None


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
