"""Questions that are asked without an executor: the test itself does its work, as it likes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.access.authorizer import Identified, OfExecution
from orchestrator.core import executions
from orchestrator.core.authority import Asker
from orchestrator.core.executions import NewExecution
from orchestrator.core.models import Action, Execution
from orchestrator.inquiries import asking, questions, waiting
from orchestrator.inquiries.asking import Asked
from orchestrator.inquiries.models import Inquiry
from tests.factories import NOW, make_action
from tests.principals import given

ACTOR = "executor"
YES_OR_NO = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}
YES = {"approved": True}


def person(name: str = "ada", *roles: str, number: int = 0, gives: str = "operator") -> Identified:
    """Somebody who may answer, as one of these roles."""
    return Identified(
        actor=f"user:{name}",
        key_owner=number or 1 + sum(map(ord, name)),
        layers=(tuple(map(given, roles or (gives,))),),
        identity=f"user:{name}",
    )


def as_execution(execution: Execution) -> OfExecution:
    """The execution itself, by its token."""
    return OfExecution(
        actor=f"execution:{execution.pk}",
        execution_id=execution.pk,
        action_ref=execution.action_ref,
        permissions=frozenset({"inquiries.ask", "inquiries.read", "inquiries.respond"}),
    )


def asked(now: datetime = NOW, **values: Any) -> Inquiry:
    """An inquiry of nobody's execution, asked by grace."""
    question = questions.read({"prompt": "Go?", "schema": YES_OR_NO} | values)
    by = Asked(by=Asker("user:grace", person("grace").key_owner), pack="core", purpose="test")
    return asking.ask(question, asked=by, now=now)


def ask_action() -> Action:
    return make_action("core.ask", runtime=waiting.RUNTIME, entry_point=[], idempotent=True)


def request(now: datetime = NOW, principal: Any = None, **parameters: Any) -> Execution:
    """A request of `core.ask`, which no executor has seen."""
    ask_action()
    known = {"prompt": "Go?", "schema": YES_OR_NO} | parameters
    if questions.WAIT_FOR in parameters:
        known = parameters
    new = NewExecution(action_ref="core.ask", parameters=known)
    by = principal.actor if principal else "grace"
    return executions.request(new, requested_by=by, now=now, principal=principal)


def held(now: datetime = NOW, **parameters: Any) -> tuple[Execution, Inquiry]:
    """An execution of `core.ask` that waits for its answer."""
    execution = request(now, **parameters)
    assert waiting.take([execution], now=now, actor=ACTOR) == 1
    execution.refresh_from_db()
    return execution, Inquiry.objects.get(asked_by_execution=execution)
