"""Acts on an execution: cancel it, run it again, have somebody look into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import acts
from orchestrator.console.acts import Dialog, Done
from orchestrator.console.look import Look
from orchestrator.core import authority, contents, executions, investigations
from orchestrator.core.errors import NotFound
from orchestrator.core.models import Execution
from orchestrator.core.shown import executions as shown
from orchestrator.core.states import ExecutionStatus


@dataclass(frozen=True)
class Act:
    """Something that an operator does to an execution."""

    name: str
    label: str
    button: str
    needs: str
    is_useful: Callable[[Execution], bool]
    question: str
    explanation: str
    asks: str = "Reason"


def _may_be_cancelled(execution: Execution) -> bool:
    return not execution.is_terminal and execution.status != ExecutionStatus.CANCELING


def _may_run_again(execution: Execution) -> bool:
    # what an app requested with secrets of its own, that app runs again
    return execution.is_terminal and shown.secrets_of(execution) is contents.UNKNOWN


ACTS = {
    act.name: act
    for act in (
        Act(
            "cancel",
            "Cancel",
            "Cancel the execution",
            "executions.cancel",
            _may_be_cancelled,
            "Stop this execution?",
            "If it has not started, it never will. If it is running, its worker stops it. "
            "This cannot be undone.",
        ),
        Act(
            "again",
            "Run again",
            "Run it again",
            "executions.run",
            _may_run_again,
            "Run this again?",
            "A new execution is requested, with the same parameters and options. This one stays "
            "as it is.",
        ),
        Act(
            "investigate",
            "Open an investigation",
            "Open the investigation",
            "dlq.change",
            lambda execution: True,
            "Have somebody look into this?",
            "An investigation is opened, with the execution as it is now. The execution itself "
            "stays as it is.",
            asks="What is to be looked into",
        ),
    )
}


class UnknownAct(NotFound):
    """No act has this name."""


def allowed(look: Look, execution: Execution) -> list[Dialog]:
    """The dialogs for what the user may do to it."""
    return [
        _dialog(act, execution) for act in ACTS.values() if look.may(act.needs, execution.place)
    ]


def useful(execution: Execution, dialogs: list[Dialog]) -> list[Dialog]:
    """Those that would change something now. What is not offered is refused all the same."""
    return [each for each in dialogs if ACTS[each.id].is_useful(execution)]


def _dialog(act: Act, execution: Execution) -> Dialog:
    return Dialog(
        id=act.name,
        label=act.label,
        button=act.button,
        question=act.question,
        explanation=f"{execution.action_ref}, {execution.status}. {act.explanation}",
        url=reverse("console:execution-act", args=[execution.pk]),
        # sent twice, the form makes one execution
        hidden={"act": act.name, "token": str(uuid4())},
        asks=act.asks,
    )


@acts.verb
def do(look: Look, request: HttpRequest, id: UUID) -> Done:
    """Do what the form says."""
    act = ACTS.get(request.POST.get("act", ""))
    if act is None:
        raise UnknownAct(f"An execution knows the acts {', '.join(ACTS)}")
    execution = Execution.objects.filter(pk=id).first()
    if execution is None or not look.may("executions.read", execution.place):
        raise executions.UnknownExecution(f"No execution has the id {id}")
    authority.require(look.user, act.needs, execution.place)
    return DONE[act.name](look, request, execution)


def _cancel(look: Look, request: HttpRequest, execution: Execution) -> Done:
    row = executions.cancel(
        execution_id=execution.pk,
        actor=look.user.actor,
        reason=acts.reason(request),
        principal=look.user,
        now=look.now,
    )
    is_over = row.status == ExecutionStatus.CANCELLED
    text = "Cancelled." if is_over else "Its worker was told to stop it."
    return Done(text, page_of(execution.pk))


def _again(look: Look, request: HttpRequest, execution: Execution) -> Done:
    new = executions.run_again(
        execution,
        token=look.token,
        by=look.user.actor,
        principal=look.user,
        now=look.now,
        reason=acts.reason(request),
    )
    return Done("It runs again: this is the new execution.", page_of(new.pk))


def _investigate(look: Look, request: HttpRequest, execution: Execution) -> Done:
    investigations.open_manually(
        "execution",
        execution.pk,
        detail=acts.reason(request),
        now=look.now,
        actor=look.user.actor,
        principal=look.user,
    )
    return Done("An investigation is open.", f"{page_of(execution.pk)}?tab=letters")


DONE = {"cancel": _cancel, "again": _again, "investigate": _investigate}


def page_of(id: UUID) -> str:
    return reverse("console:execution", args=[id])
