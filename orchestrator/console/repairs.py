"""Repairs of a step, and ends of a task, by an operator: the verbs of the API and the commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import acts, paging
from orchestrator.console.acts import Dialog, Done
from orchestrator.console.look import Look
from orchestrator.core import authority, investigations, json_values, redaction
from orchestrator.core.errors import MusterError, NotFound
from orchestrator.core.models import DLQEntry
from orchestrator.workflows import engine
from orchestrator.workflows.models import Step, Task
from orchestrator.workflows.states import TASKS
from orchestrator.workflows.states.steps import IN_FLIGHT

REPAIR = "steps.repair"
CHANGE_ENTRY = "dlq.change"

SAMPLES: Mapping[str, Any] = {
    "string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {},
}  # fmt: skip
"""The values that a result begins with, by the type that its schema names."""


class UnknownRepair(NotFound):
    """No repair of a step has this name."""


class UnknownEnd(NotFound):
    """A task knows no act of this name."""


class ResultIsNoJson(MusterError):
    """The result has to be JSON."""


@dataclass(frozen=True)
class Repair:
    """A repair of a step."""

    label: str
    verb: Callable[..., Step]
    question: str
    explanation: str
    done: str


REPAIRS: Mapping[str, Repair] = {
    "reset": Repair(
        "Try again",
        engine.reset_for_retry,
        "Try {name} again?",
        "Its attempts count from 0 again, without a pause before the first. The task continues by "
        "itself.",
        "is tried again",
    ),
    "resolve": Repair(
        "Count as done",
        engine.resolve_manually,
        "Count {name} as done?",
        "It ends without a result, and the steps after it start. This cannot be undone.",
        "counts as done",
    ),
    "complete": Repair(
        "Give its result",
        engine.complete_manually,
        "Complete {name} by hand?",
        "The steps after it see the result that you give. This cannot be undone.",
        "is complete",
    ),
    "cancel": Repair(
        "Cancel the step",
        engine.cancel_step,
        "Cancel {name}?",
        "It ends without its work, and the steps after it do not start. The rest of the task goes "
        "on; then the task waits until somebody closes it. This cannot be undone.",
        "is cancelled",
    ),
}


@dataclass(frozen=True)
class End:
    """An act on a task as a whole."""

    label: str
    verb: Callable[..., Task]
    needs: str
    question: str
    explanation: str
    done: str


ENDS: Mapping[str, End] = {
    "release": End(
        "Release",
        engine.release,
        REPAIR,
        "Have this task tried again as it is?",
        "An executor advances it again. If executors died of it, repair what they died of first: a "
        "step, or the pack.",
        "The task is released.",
    ),
    "resolve": End(
        "Close as it is",
        engine.resolve,
        REPAIR,
        "Close this task as it is?",
        "Its work was done in another way. Its open steps are cancelled. This cannot be undone.",
        "The task is resolved.",
    ),
    "cancel": End(
        "Cancel the task",
        engine.cancel,
        "tasks.cancel",
        "Cancel this task?",
        "Its open steps are cancelled, and its running executions are stopped. This cannot be "
        "undone.",
        "The task is cancelled.",
    ),
}


@dataclass(frozen=True)
class StepDialog(Dialog):
    """The dialog of a repair, with what it asks besides the reason."""

    template: str = "console/step_dialog.html"
    is_in_flight: bool = False
    """It can be told to stop the step's execution."""
    sample: str | None = None
    """The text that the field of the result begins with; None without such a field."""
    schema: str = ""
    """The schema of the result."""
    entry_uuid: str = ""
    """The open investigation, which can be closed with it."""
    closes: bool = False
    """That is suggested: nothing else stands in the way."""


# --- what is offered -----------------------------------------------------------------------------


def of_task(look: Look, task: Task, *, view: str) -> list[Dialog]:
    """The dialogs for what the user may do with the task as a whole, in its state."""
    return [
        _end_dialog(name, end, task, view)
        for name, end in ENDS.items()
        if TASKS.allows(name, task.state) and look.may(end.needs, task.place)
    ]


def _end_dialog(name: str, end: End, task: Task, view: str) -> Dialog:
    return Dialog(
        id=f"task-{name}",
        label=end.label,
        button=end.label,
        question=end.question,
        explanation=f"{task.template.ref}. {end.explanation}",
        url=reverse("console:end-task", args=[task.pk]),
        hidden={"act": name, "view": view},
    )


def useful(look: Look, step: Step) -> list[tuple[str, str]]:
    """The dialogs of repairs that would change the step now: their ids and labels."""
    if step.task.is_terminal or not look.may(REPAIR, step.place):
        return []
    return [(_id(verb, step), REPAIRS[verb].label) for verb in engine.possible(step)]


def allowed(
    look: Look, step: Step, *, view: str, entry: DLQEntry | None, is_last: bool
) -> list[StepDialog]:
    """The dialogs of all repairs that the user may do: the step may move while they look.

    `entry`: the open investigation of its task. `is_last`: no other step has failed.
    """
    if not look.may(REPAIR, step.place):
        return []
    may_close = entry is not None and look.may(CHANGE_ENTRY, step.place)
    closing = entry if may_close else None
    return [_step_dialog(verb, step, view, closing, is_last=is_last) for verb in REPAIRS]


def _step_dialog(
    verb: str, step: Step, view: str, entry: DLQEntry | None, *, is_last: bool
) -> StepDialog:
    repair = REPAIRS[verb]
    gives_result = verb == "complete"
    schema = _schema(step) if gives_result else None
    return StepDialog(
        id=_id(verb, step),
        label=repair.label,
        button=f"{repair.label}: {step.name}",
        question=repair.question.format(name=step.name),
        explanation=repair.explanation,
        url=reverse("console:repair", args=[step.task_id, step.pk]),
        hidden={"repair": verb, "view": view, "seen": str(step.fence)},
        is_in_flight=step.state in IN_FLIGHT,
        sample=json.dumps(_sample(schema), indent=2) if gives_result else None,
        schema=json.dumps(schema, indent=2, ensure_ascii=False) if schema else "",
        entry_uuid=str(entry.dlq_entry_uuid) if entry else "",
        closes=is_last and verb != "cancel",
    )


def _id(verb: str, step: Step) -> str:
    return f"{verb}-{step.name}"


def _schema(step: Step) -> Mapping[str, Any] | None:
    defined = engine.definition_of(step.task).steps.get(step.template_step)
    return redaction.redacted_schema(defined.result_schema) if defined else None


def _sample(schema: Any) -> Any:
    """A value to begin with; it need not fit yet."""
    if not isinstance(schema, Mapping):
        return {}
    properties = schema.get("properties", {})
    names = [*properties, *(name for name in schema.get("required", ()) if name not in properties)]
    if names:
        return {name: _sample_of(properties.get(name, {})) for name in names}
    return _sample_of(schema)


def _sample_of(schema: Any) -> Any:
    named = schema.get("type") if isinstance(schema, Mapping) else None
    return SAMPLES.get(named) if isinstance(named, str) else None


# --- what is done --------------------------------------------------------------------------------


@acts.verb
def repair(look: Look, request: HttpRequest, id: UUID, step_id: UUID) -> Done:
    """Repair a step, and close the investigation of its task if that is asked for."""
    step = _known(look, id, step_id)
    name = request.POST.get("repair", "")
    if name not in REPAIRS:
        raise UnknownRepair(f"A step knows the repairs {', '.join(REPAIRS)}")
    reason = acts.reason(request)
    entry = _entry(look, request, step)
    verb = REPAIRS[name].verb
    if name == "complete":
        verb = partial(verb, result=_result(request), principal=look.user)
    verb(
        step.pk,
        reason=reason,
        actor=look.user.actor,
        now=look.now,
        force=bool(request.POST.get("force")),
        seen_fence=_seen(request),
    )
    text = f"{step.name} {REPAIRS[name].done}." + _close(look, entry, reason)
    return Done(text, _url(request, id, step=step.name))


@acts.verb
def end(look: Look, request: HttpRequest, id: UUID) -> Done:
    """Release, resolve or cancel a task."""
    task = Task.objects.filter(pk=id).select_related("template").first()
    if task is None:
        raise engine.UnknownTask(f"No task has the id {id}")
    chosen = ENDS.get(request.POST.get("act", ""))
    if chosen is None:
        raise UnknownEnd(f"A task knows the acts {', '.join(ENDS)}")
    authority.require(look.user, chosen.needs, task.place)
    chosen.verb(id, reason=acts.reason(request), actor=look.user.actor, now=look.now)
    return Done(chosen.done, _url(request, id))


def _known(look: Look, id: UUID, step_id: UUID) -> Step:
    rows = Step.objects.select_related("task__template").filter(pk=step_id, task=id)
    step = rows.without_contents().first()
    if step is None:
        raise engine.UnknownStep(f"Task {id} has no step with the id {step_id}")
    authority.require(look.user, REPAIR, step.place)
    return step


def _entry(look: Look, request: HttpRequest, step: Step) -> DLQEntry | None:
    """The investigation to close, which is about the step's task."""
    text = request.POST.get("close", "")
    if not text:
        return None
    authority.require(look.user, CHANGE_ENTRY, step.place)
    rows = DLQEntry.objects.about(step.task_id).without_contents()
    try:
        entry = rows.filter(dlq_entry_uuid=UUID(text)).first()
    except ValueError:
        entry = None
    if entry is None:
        raise investigations.UnknownEntry(f"Task {step.task_id} has no such investigation")
    return entry


def _close(look: Look, entry: DLQEntry | None, reason: str) -> str:
    """Close it, with the reason of the repair as its note; what to say of it."""
    if entry is None:
        return ""
    try:
        investigations.close(
            entry.dlq_entry_uuid,
            resolution=DLQEntry.Resolution.MANUALLY_RESOLVED,
            now=look.now,
            actor=look.user.actor,
            note=reason,
        )
    except investigations.EntryIsClosed as error:
        return f" {error}."
    return " Its investigation is closed."


def _result(request: HttpRequest) -> Any:
    """The result that the form has. Raises ResultIsNoJson."""
    text = request.POST.get("result", "")
    try:
        return json_values.read(text.encode("utf-8", "replace"))
    except json_values.Malformed as error:
        raise ResultIsNoJson(f"The result is not JSON at {error}. Write null for none") from None
    except json_values.Unreadable as error:
        raise ResultIsNoJson(f"The result cannot be read: {error}") from None


def _seen(request: HttpRequest) -> int | None:
    return paging.parsed(request.POST.get("seen", ""), int)


def _url(request: HttpRequest, id: UUID, **query: str) -> str:
    """The page of the task, in the view from which it was done."""
    view = {"view": request.POST["view"]} if request.POST.get("view") else {}
    return f"{reverse('console:task', args=[id])}?{urlencode(view | query)}"
