"""A task: where it stands and what blocks it; as a graph, a gantt, a table of its steps, a
timeline. A step that is chosen can be repaired in each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.http import HttpRequest

from orchestrator.console import access, addresses, draw, paging, repairs
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core import cursors, words
from orchestrator.core.models import DLQEntry
from orchestrator.core.words import Kind
from orchestrator.workflows import engine
from orchestrator.workflows.models import Step, StepKind, Task, TransitionRecord
from orchestrator.workflows.shown import (
    gantt,
    gantt_svg,
    graph,
    graph_svg,
    happenings,
    secrets,
    steps,
    verdicts,
)
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.states import TASKS, StepState
from orchestrator.workflows.states.steps import IN_FLIGHT

GRAPH, GANTT, STEPS, TIMELINE = VIEWS = ("graph", "gantt", "steps", "timeline")
STEP_ROWS = 50
NOTED_MAX = 5
FOLLOWED_MAX = 15
"""Executions in flight whose changes move the page; a tab may ask for twenty topics."""
RECORDS_MAX = 2_000
LINES_MAX = 200


@dataclass
class OneTask:
    """The things that the parts of the page share: rows that are read once."""

    look: Look
    task: Task
    query: Mapping[str, str]
    waits: Mapping[UUID, Sequence[steps.WaitsFor]] = field(default_factory=dict)
    """By step, as far as they were read: what it waits for."""

    @property
    def view(self) -> str:
        view = self.query.get("view", GRAPH)
        return view if view in VIEWS else GRAPH

    def url(self, **query: str) -> str:
        """This page in this view, or another one; the chosen step stays chosen."""
        kept = {"view": self.view} | {k: v for k, v in self.query.items() if k == "step"}
        return f"?{urlencode(kept | query)}"

    @cached_property
    def graph(self) -> graph.Graph:
        return graph.of_task(self.task)

    @cached_property
    def chart(self) -> gantt.Chart:
        return gantt.of_task(self.task, self.look.now)

    @cached_property
    def counts(self) -> Mapping[StepState, int]:
        if self.view == GRAPH:
            return self.graph.states
        if self.view == GANTT and not self.chart.is_cut:
            return Counter(row.state for row in self.chart.rows)
        return steps.counts([self.task.pk])[self.task.pk]

    @cached_property
    def noted(self) -> list[Step]:
        """The step that is asked for, and some that somebody has to know of, the worst first; in
        one query."""
        name = self.query.get("step", "")
        rows = Step.objects.filter(Q(state__in=verdicts.NOTED) | Q(name=name), task=self.task)
        is_named = Case(When(name=name, then=Value(0)), default=Value(1))
        rows = steps.by_attention(rows.defer("completion_metadata"))
        found = list(rows.order_by(is_named, F("attention"), "pk")[: NOTED_MAX + 1])
        for step in found:
            step.task = self.task
        return found

    @cached_property
    def chosen(self) -> Step | None:
        """The step that is asked for, or else the first that has failed and can be repaired."""
        if name := self.query.get("step"):
            return next((step for step in self.noted if step.name == name), None)
        if self.task.is_terminal:
            return None
        return next((step for step in self.noted if step.state == StepState.ERROR), None)

    @cached_property
    def entry(self) -> DLQEntry | None:
        """The investigation that is open about it, if the user may know of it."""
        pk: int | None = self.task.entry_pk  # type: ignore[attr-defined]
        if pk is None or not self.look.may("dlq.read", self.task.place):
            return None
        uuid: UUID = self.task.entry_uuid  # type: ignore[attr-defined]
        return DLQEntry(pk=pk, dlq_entry_uuid=uuid)


@access.page("task", needs="tasks.read", topics="clock")
def show(look: Look, request: HttpRequest, id: UUID) -> Context:
    """The verdict, the chosen step with its repairs, and one of the views."""
    task = found(look, id)
    one = OneTask(look, task, paging.query_of(request))
    drawn = PARTS[one.view](one)
    in_flight = drawn.pop("in_flight", ())
    return {
        "title": f"{task.template.name} {str(id)[-8:]}",
        "here": "tasks",
        "topics": _topics(task, in_flight),
        "task": task,
        "kind": words.kind_of(task.state),
        "verdict": _verdict(one),
        "progress": (shown.done(one.counts), sum(one.counts.values())),
        "views": [(name, one.url(view=name), name == one.view) for name in VIEWS],
        "view": one.view,
        "entry": draw.link(one.entry, "the open investigation") if one.entry else "",
        "step": _panel(one),
        "acts": repairs.of_task(look, task, view=one.view),
        "dialogs": [*repairs.of_task(look, task, view=one.view), *_dialogs(one)],
        "request_facts": draw.facts(shown.request(task), seen_by=look.user),
        "context": draw.json(secrets.context(task, seen_by=look.user)),
        "template_url": addresses.of(task.template),
    } | drawn


def found(look: Look, id: UUID, permission: str = "tasks.read") -> Task:
    """The task with this id, and its template. Raises UnknownTask."""
    entry = DLQEntry.objects.pending().filter(subject_id=OuterRef("pk")).order_by("pk")
    moves = TransitionRecord.objects.filter(task=OuterRef("pk"), step=None).order_by("-pk")
    rows = Task.objects.filter(pk=id).select_related("template")
    task = rows.annotate(
        entry_pk=Subquery(entry.values("pk")[:1]),
        entry_uuid=Subquery(entry.values("dlq_entry_uuid")[:1]),
        moved_by=Subquery(moves.values("actor")[:1]),
        moved_for=Subquery(moves.values("reason")[:1]),
    ).first()
    if task is None or not look.may(permission, task.place):
        raise engine.UnknownTask(f"No task has the id {id}")
    return task


def _topics(task: Task, in_flight: Iterable[UUID]) -> str:
    """A task's steps begin and end with its own moves, and with those of their executions."""
    followed = [f"execution:{id}" for id in list(in_flight)[:FOLLOWED_MAX]]
    is_over = task.state in TASKS.terminal
    return ",".join([f"task:{task.pk}", *([] if is_over else ["clock"]), *followed])


def _verdict(one: OneTask) -> str:
    return verdicts.of_task(
        one.task,
        counts=one.counts,
        noted=[step for step in one.noted if step.state in verdicts.NOTED],
        last_move=(one.task.moved_by or "", one.task.moved_for or ""),  # type: ignore[attr-defined]
        now=one.look.now,
        seen_by=one.look.user,
    )


# --- the chosen step -----------------------------------------------------------------------------


def _panel(one: OneTask) -> Context | None:
    """The chosen step: where it stands, what it waits for, its error, its repairs."""
    step = one.chosen
    if step is None:
        return None
    latest = step.execution_id if one.look.may("executions.read") else None
    return {
        "name": step.name,
        "state": step.state,
        "kind": words.kind_of(step.state),
        "since": draw.value(steps.since(step, one.look.now)[1]),
        "attempts": steps.attempts(step),
        "action": _action(step),
        "waits_for": _waits_for(one, step),
        "error": draw.printable(steps.message(step, seen_by=one.look.user)),
        "next_retry_at": draw.moment(step.next_retry_at) if step.next_retry_at else "",
        "latest": latest,
        "result": _result(one, step),
        "acts": repairs.useful(one.look, step),
    }


def _action(step: Step) -> str:
    defined = engine.definition_of(step.task).steps.get(step.template_step)
    return defined.action_ref if defined else ""


def _waits_for(one: OneTask, step: Step) -> str:
    if step.state not in (StepState.PENDING, StepState.WAITING_FOR_RETRY):
        return ""
    if one.view == GRAPH:
        names = one.graph.waits_for(step.name) if step.name in one.graph.nodes else []
        return ", ".join(names[: steps.NAMED_LIMIT])
    waits = one.waits or steps.unsatisfied([step.pk])[0]
    return ", ".join(each.name for each in waits.get(step.pk, ()))


def _result(one: OneTask, step: Step) -> str:
    """The result that the steps after it see. An answer's secrets are known to its own page
    only."""
    if step.result is None or step.kind == StepKind.INQUIRY:
        return ""
    return draw.json(secrets.result(step, one.task.template, seen_by=one.look.user))


def _dialogs(one: OneTask) -> list[repairs.StepDialog]:
    step = one.chosen
    if step is None or one.task.is_terminal:
        return []
    others = sum(each.state == StepState.ERROR and each.pk != step.pk for each in one.noted)
    return repairs.allowed(one.look, step, view=one.view, entry=one.entry, is_last=not others)


# --- the views -----------------------------------------------------------------------------------


def _graph(one: OneTask) -> Context:
    whole = one.graph
    piled = graph.piled(whole)
    chosen = one.chosen.name if one.chosen else ""

    def link(node: graph.Node) -> str:
        if node.count == 1:
            return one.url(step=node.name) if node.id else ""
        template_step = {"template_step": node.template_step} if node.template_step else {}
        return one.url(view=STEPS, **template_step)

    return {
        "picture": graph_svg.picture(piled, link=link, chosen=chosen) if piled.nodes else "",
        "left_out": graph_svg.left_out(piled),
        "is_made": whole.is_made,
        "is_piled": len(piled.nodes) < len(whole.nodes),
        "total": sum(whole.states.values()),
        "legend": _legend(whole.states),
        "in_flight": [node.execution_id for node in whole.nodes.values() if node.execution_id],
    }


def _gantt(one: OneTask) -> Context:
    chart = one.chart
    chosen = one.chosen.name if one.chosen else ""
    picture = gantt_svg.picture(chart, link=lambda row: one.url(step=row.name), chosen=chosen)
    return {
        "picture": picture if chart.rows else "",
        "is_cut": chart.is_cut,
        "rows_limit": gantt.ROWS_LIMIT,
        "in_flight": [
            bar.execution_id
            for row in chart.rows
            for bar in row.bars
            if bar.is_open and bar.execution_id
        ],
    }


@dataclass(frozen=True)
class StepRow:
    """A step as the table shows it."""

    step: Step
    kind: Kind
    url: str
    blocked_by: str
    took: str


def _steps(one: OneTask) -> Context:
    rows = steps.by_attention(Step.objects.filter(task=one.task).defer("result"))
    for name in ("state", "template_step"):
        if text := one.query.get(name):
            rows = rows.filter(**{name: text})
    if after := _after(one.query):
        place, pk = after
        rows = rows.filter(Q(attention__gt=place) | Q(attention=place, pk__gt=pk))
    page = list(rows[: STEP_ROWS + 1])
    more = len(page) > STEP_ROWS
    page = page[:STEP_ROWS]
    asked = [step.pk for step in page] + ([one.chosen.pk] if one.chosen else [])
    one.waits, totals = steps.unsatisfied(asked)
    for step in page:
        step.task = one.task
    kept = {name: one.query[name] for name in ("state", "template_step") if name in one.query}
    last = page[-1] if page else None
    return {
        "rows": [_step_row(one, step, totals.get(step.pk, 0)) for step in page],
        "more": one.url(after=cursors.write(f"{last.attention}:{last.pk}"), **kept)  # type: ignore[attr-defined]
        if more and last
        else "",
        "states": [state.value for state in StepState],
        "filters": kept,
        "in_flight": [s.execution_id for s in page if s.state in IN_FLIGHT and s.execution_id],
    }


def _step_row(one: OneTask, step: Step, parents: int) -> StepRow:
    waits = one.waits.get(step.pk, ())
    named = ", ".join(f"{each.name} ({each.state})" for each in waits)
    more = parents - len(waits)
    blocked_by = f"{named} and {more:,} more" if more > 0 else named
    if step.is_terminal:
        blocked_by = ""
    elif step.state == StepState.ERROR:
        blocked_by = steps.message(step, seen_by=one.look.user) or "it failed for good"
    since = "" if step.ended_at else _span(one, step)
    return StepRow(step, words.kind_of(step.state), one.url(step=step.name), blocked_by, since)


def _span(one: OneTask, step: Step) -> str:
    return words.span((one.look.now - step.state_entered_at).total_seconds())


def _after(query: Mapping[str, str]) -> tuple[int, UUID] | None:
    def key(text: str) -> tuple[int, UUID]:
        place, _, pk = text.partition(":")
        return int(place), UUID(pk)

    return paging.cursor(query.get(paging.AFTER, ""), key)


def _timeline(one: OneTask) -> Context:
    """The newest moves; those between inner states are folded unless they are asked for."""
    rows = TransitionRecord.objects.filter(task=one.task).select_related("step").order_by("-pk")
    before = paging.cursor(one.query.get(paging.BEFORE, ""), cursors.whole_number)
    if before:
        rows = rows.filter(pk__lt=before)
    names = ("event", "from_state", "to_state", "actor", "reason", "processor", "at")
    columns = (*names, "task_id", "step__name", "step__template_step")
    records = list(rows.only(*columns)[: RECORDS_MAX + 1])
    is_whole = len(records) <= RECORDS_MAX
    records = records[:RECORDS_MAX][::-1]
    with_inner = bool(one.query.get("inner"))
    since = one.task.created_at if is_whole else None
    lines, folded = happenings.of_task(records, since=since, with_inner=with_inner)
    cut = lines[-LINES_MAX:]
    oldest = cut[0].id if cut and len(lines) > LINES_MAX else (records[0].pk if records else 0)
    is_first = is_whole and len(lines) <= LINES_MAX
    return {
        "lines": [draw.line(line.happening) | {"subject": line.subject} for line in cut],
        "accepted": one.task if is_first else None,
        "folded": folded,
        "with_inner": with_inner,
        "inner_url": one.url(**({} if with_inner else {"inner": "yes"})),
        "older": "" if is_first else one.url(
            before=cursors.write(oldest), **({"inner": "yes"} if with_inner else {})
        ),
    }  # fmt: skip


def _legend(counts: Mapping[StepState, int]) -> list[tuple[Any, str]]:
    return [
        (draw.badge(state, words.kind_of(state)), f"{counts[state]:,}")
        for state in StepState
        if counts.get(state)
    ]


PARTS: Mapping[str, Callable[[OneTask], Context]] = {
    GRAPH: _graph,
    GANTT: _gantt,
    STEPS: _steps,
    TIMELINE: _timeline,
}
