"""Tasks: a list, with those that somebody has to look after first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import access, ids, paging
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core import cursors, words
from orchestrator.core.models import DLQEntry
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.words import Kind
from orchestrator.workflows.models import Task, TaskLimit, TaskStaleness, TaskTemplate
from orchestrator.workflows.models.tasks import TaskQuerySet
from orchestrator.workflows.shown import steps
from orchestrator.workflows.shown.tasks import done
from orchestrator.workflows.states import TASKS, StepState, TaskState

ATTENTION_MAX = 20
"""Tasks that need attention and are listed before the others."""
PSEUDO_STATES = OPEN, ATTENTION, NEAR = "open", "attention", "near limit"
"""States of the filter that stand for several."""
NEAR_MAX = 500
"""Tasks near or over a limit of their template that are listed."""
TEXTS = ("template", "correlation", "initiator", "source")
"""The filters that are typed."""
WAITING: Mapping[StepState, str] = {
    StepState.WAITING_FOR_INQUIRY: "waits for an answer",
    StepState.WAITING_FOR_RETRY: "waits for the next attempt",
    StepState.ENQUEUED: "waits for a slot",
}


@dataclass(frozen=True)
class Row:
    """A task as the list shows it."""

    task: Task
    kind: Kind
    done: int
    total: int
    message: str
    took: str


class TaskNumber(NamedTuple):
    """A number for Now: its name, its value, the list of what it counts, its kind."""

    name: str
    number: int
    url: str
    kind: Kind


class Found(NamedTuple):
    """Something of tasks that the palette finds."""

    text: str
    hint: str
    url: str


@access.page("tasks", needs="tasks.read", topics="task,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """Those that need attention, then the newest that match the filters of the address."""
    query = _query(request)
    matching = _matching(look, query)
    first = paging.parsed(request.headers.get(paging.FIRST, ""), UUID)
    newer = matching.filter(pk__gt=first).order_by()[: paging.NEWER_MAX + 1].count() if first else 0
    read = matching.filter(pk__lte=first) if first else matching
    urgent = _urgent(read, query)
    shown, cursor = _page(look, query, read, urgent)
    tasks = [*urgent[:ATTENTION_MAX], *shown] if _begins(query) else shown
    return {
        "title": "Tasks",
        "here": "tasks",
        "rows": _rows(look, tasks, are_near=query.get("state") == NEAR),
        "is_correlated": any(each.correlation_id for each in tasks),
        "more_urgent": _begins(query) and len(urgent) > ATTENTION_MAX,
        "attention_max": ATTENTION_MAX,
        "older": urlencode({**query, "before": cursor}) if cursor else "",
        "newer": newer,
        "newer_max": paging.NEWER_MAX,
        "first": first or (max(each.pk for each in tasks) if tasks and _begins(query) else ""),
        "is_bounded": _scans(query),
        "looked_at": cursors.LOOKED_AT_LIMIT,
        "query": query,
        "is_filtered": bool(query.keys() - {"before"}),
        "states": [*PSEUDO_STATES, *(state.value for state in TaskState)],
        "windows": paging.AGES,
        "texts": [(name, query.get(name, "")) for name in TEXTS],
    }


def tasks_url(**query: str) -> str:
    """The list with these filters."""
    return f"{reverse('console:tasks')}?{urlencode(query)}"


def numbers(counts: Counter[str]) -> Sequence[TaskNumber]:
    """The number of tasks that are open, and of those of them that are blocked, for Now. `counts`:
    of open tasks, by state."""
    blocked = counts[TaskState.BLOCKED_BY_FAILURES]
    return [
        TaskNumber("open", counts.total(), tasks_url(state=OPEN), Kind.PLAIN),
        TaskNumber(
            "blocked",
            blocked,
            tasks_url(state=TaskState.BLOCKED_BY_FAILURES),
            Kind.DANGER if blocked else Kind.PLAIN,
        ),
    ]


def found(look: Look, typed: Sequence[str]) -> Iterator[Found]:
    """The tasks of which a part of the id was typed, for the palette."""
    visible = Task.objects.visible_to(look.user).select_related("template").only(
        "state", "template__namespace", "template__name", "template__version"
    )  # fmt: skip
    for task in ids.found(visible, typed):
        url = reverse("console:task", args=[task.pk])
        yield Found(f"Task {task.pk}", f"{task.template.ref} {task.state}", url)


# --- filters -------------------------------------------------------------------------------------


def _query(request: HttpRequest) -> dict[str, str]:
    query = paging.query_of(request)
    if _before(query) is None:
        query.pop("before", None)
    return query


def _matching(look: Look, query: Mapping[str, str]) -> TaskQuerySet:
    """Those that the filters mean. What a filter does not know, nothing matches."""
    rows = Task.objects.visible_to(look.user)
    if age := paging.AGES.get(query.get("within", "")):
        rows = rows.filter(created_between(look.now - age, None))
    if state := query.get("state"):
        rows = _in_state(rows, state, look.now)
    if template := query.get("template"):
        rows = rows.filter(template__in=_templates(template))
    if correlation := query.get("correlation"):
        rows = rows.filter(correlation_id=correlation)
    if initiator := query.get("initiator"):
        rows = rows.filter(Q(initiator=initiator) | Q(requested_by=initiator))
    if source := query.get("source"):
        rows = rows.filter(source_system=source)
    return rows


def _in_state(rows: TaskQuerySet, state: str, now: datetime) -> TaskQuerySet:
    if state == OPEN:
        return rows.open()
    if state == NEAR:
        return rows.filter(pk__in=TaskLimit.objects.near(now=now, limit=NEAR_MAX))
    if state == ATTENTION:
        return rows.filter(_needs_attention())
    # the partial indexes are over `ended_at`
    return rows.filter(state=state, ended_at__isnull=state not in TASKS.ended)


def _needs_attention() -> Q:
    """Is blocked; or is in error, with an investigation that nobody has closed."""
    pending = DLQEntry.objects.pending().filter(subject_kind="task", subject_id__isnull=False)
    ids = list(pending.order_by("-pk").values_list("subject_id", flat=True)[: paging.ROWS])
    blocked = Q(ended_at__isnull=True, state=TaskState.BLOCKED_BY_FAILURES)
    return blocked | Q(pk__in=ids, state=TaskState.ERROR)


def _templates(text: str) -> list[int]:
    """Those of `namespace/name/version`, of `namespace/name`, or with this name."""
    parts = text.strip().split("/")
    names = ("namespace", "name", "version") if len(parts) > 1 else ("name",)
    wanted = dict(zip(names, parts, strict=False))
    return list(TaskTemplate.objects.filter(**wanted).values_list("pk", flat=True)[: paging.ROWS])


def _scans(query: Mapping[str, str]) -> bool:
    """True if no index leads to what the filters mean: then a page looks at a part of the table."""
    if query.keys() & {"correlation", "template"} or query.get("state") in PSEUDO_STATES:
        return False
    is_ended = query.get("state") in TASKS.ended
    return is_ended or bool(query.keys() & {"initiator", "source"})


def _urgent(matching: TaskQuerySet, query: Mapping[str, str]) -> list[Task]:
    """Those that need attention, the newest first, one more than is listed. Only a list of all, or
    of all open tasks, begins with them; its other pages leave them out."""
    if query.get("state", OPEN) != OPEN:
        return []
    rows = matching.filter(_needs_attention()).order_by("-pk")
    return list(_listed(rows)[: ATTENTION_MAX + 1])


def _page(
    look: Look, query: Mapping[str, str], matching: TaskQuerySet, urgent: Sequence[Task]
) -> tuple[list[Task], str | None]:
    rows = matching.exclude(pk__in=[task.pk for task in urgent[:ATTENTION_MAX]])
    every = Task.objects.all()
    if age := paging.AGES.get(query.get("within", "")):
        every = every.filter(created_between(look.now - age, None))
    return cursors.newest(
        _listed(rows),
        limit=paging.ROWS - (min(len(urgent), ATTENTION_MAX) if _begins(query) else 0),
        below=_before(query),
        among=every if _scans(query) else None,
    )


def _listed(rows: TaskQuerySet) -> TaskQuerySet:
    return rows.select_related("template").defer("context", "releases", "template__definition")


def _before(query: Mapping[str, str]) -> UUID | None:
    return paging.cursor(query.get(paging.BEFORE, ""), UUID)


def _begins(query: Mapping[str, str]) -> bool:
    return "before" not in query


# --- rows ----------------------------------------------------------------------------------------


def _rows(look: Look, tasks: Sequence[Task], *, are_near: bool = False) -> list[Row]:
    counts = steps.counts(task.pk for task in tasks)
    stuck = [task.pk for task in tasks if not task.is_terminal]
    said = steps.failures(stuck, seen_by=look.user) if stuck else {}
    if are_near:
        said |= _how_near(stuck)
    return [_row(look, task, counts[task.pk], said.get(task.pk, "")) for task in tasks]


def _how_near(ids: Sequence[UUID]) -> dict[UUID, str]:
    rated = TaskStaleness.objects.filter(pk__in=ids).values_list("pk", "used", "current_state")
    return {pk: f"{used:.0%} of its limit, {state}" for pk, used, state in rated}


def _row(look: Look, task: Task, counts: Mapping[StepState, int], said: str) -> Row:
    took = words.span(((task.ended_at or look.now) - task.created_at).total_seconds())
    return Row(
        task=task,
        kind=words.kind_of(task.state),
        done=done(counts),
        total=sum(counts.values()),
        message=said or _what_it_waits_for(look, task, counts),
        took=took if task.ended_at else f"{took} so far",
    )


def _what_it_waits_for(look: Look, task: Task, counts: Mapping[StepState, int]) -> str:
    if task.is_terminal:
        return task.reason
    if task.is_quarantined:
        return "quarantined: executors died of it, or failed at it"
    if task.next_retry_at is not None:
        return f"the next attempt is due {words.due(task.next_retry_at, look.now)[0]}"
    said = [f"{counts[state]:,} {text}" for state, text in WAITING.items() if counts.get(state)]
    return ", ".join(said)
