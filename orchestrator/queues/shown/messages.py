"""The task message that asked for an execution, and its answer, without their secrets.

The data of the message are the execution's parameters, and those of the answer its result: they are
shown as these are, by the same schemas, rights and masks.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.shown import executions
from orchestrator.core.shown.executions import Content
from orchestrator.core.shown.values import At, Fact, said
from orchestrator.core.states import ExecutionStatus
from orchestrator.queues.gates import choosing, replies
from orchestrator.queues.gates.replies import Kind, Reply
from orchestrator.queues.models import Ticket
from orchestrator.queues.shown.tickets import state_of

NAMES = {
    Kind.ANSWER: "Answer",
    Kind.REJECTED: "Copy of what was rejected",
    Kind.REPORT: "Report about its job",
    Kind.RETRY: "Message that is tried again",
    Kind.MOVED: "Message of a paused job",
}


def of_execution(execution: Execution, *, seen_by: Principal) -> list[Content]:
    """The message that came and what is owed for it, if the execution came through a gate."""
    if execution.queue is None:  # a gate gives its work to its queue
        return []
    rows = Ticket.objects.select_related("gate__queue", "execution")
    ticket = rows.filter(execution=execution).first()
    if ticket is None:
        return []
    return [_came(ticket, execution, seen_by), _answer(ticket, execution, seen_by)]


def _came(ticket: Ticket, execution: Execution, seen_by: Principal) -> Content:
    facts = said(
        [
            ("State", state_of(ticket)),
            ("Came", At(ticket.created_at)),
            ("Queue", ticket.gate.input_queue),
            ("Lost before", ticket.tries or None),
            ("Continues ticket", ticket.continues_id),
            ("Taken in by", ticket.holder),
            ("Job", ticket.job_status),
            ("Job asked", At(ticket.status_checked_at) if ticket.status_checked_at else None),
            ("Moved on", At(ticket.moved_at) if ticket.moved_at else None),
        ]
    )
    message = {
        "headers": ticket.headers,
        "properties": ticket.properties,
        "message": _readable(ticket.envelope),
    }
    shown = executions.without_secrets(message, of=execution, seen_by=seen_by)
    if isinstance(shown, dict):
        parameters = executions.parameters(execution, seen_by=seen_by)
        shown["message"] = _present(shown["message"]) | {"taskData": parameters}
    return Content("Task message", facts, shown)


def _answer(ticket: Ticket, execution: Execution, seen_by: Principal) -> Content:
    facts: list[Fact] = said(
        [
            ("Told", At(ticket.told_at) if ticket.told_at else None),
            ("To", ticket.told_to),
            ("Failed tries", ticket.tell_tries or None),
            ("Next try", _next_try(ticket)),
            ("Why not told", ticket.last_error),
        ]
    )
    if execution.ended_at is None:
        return Content("Answer", [*facts, ("Due", "once the execution has ended")])
    limit = choosing.retry_limit(ticket.gate)
    owed = replies.replies_of(ticket, execution, gate=ticket.gate, retry_limit=limit)
    facts += [(NAMES[each.kind], f"to {each.queue}") for each in owed]
    answers = [each for each in owed if each.kind is Kind.ANSWER]
    if not answers:
        return Content("Answer", [*facts, ("Answer", "none is owed")] if not owed else facts)
    return Content("Answer", facts, _told(answers[0], execution, seen_by))


def _next_try(ticket: Ticket) -> At | None:
    if ticket.next_tell_at is None or state_of(ticket) != "due":
        return None  # of an open ticket, it is the time at which its job is asked about again
    return At(ticket.next_tell_at)


def _told(answer: Reply, execution: Execution, seen_by: Principal) -> Any:
    body = json.loads(answer.body)
    message = {
        "headers": dict(answer.headers),
        "properties": dict(answer.properties),
        "message": _readable(body),
    }
    shown = executions.without_secrets(message, of=execution, seen_by=seen_by)
    if isinstance(shown, dict):
        data = _data(body["taskData"], execution, seen_by)
        shown["message"] = _present(shown["message"]) | {"taskData": data}
    return shown


def _data(encoded: str, execution: Execution, seen_by: Principal) -> Any:
    """The data of an answer: the result, or what went wrong, whose message is that of the result
    if it has one. An action may write more than a text there, in which names mark secrets."""
    result = executions.result(execution, seen_by=seen_by)
    if execution.status == ExecutionStatus.COMPLETED:
        return result
    explained = json.loads(base64.b64decode(encoded))
    if isinstance(result, dict) and result.get("message"):
        explained["message"] = result["message"]
    return executions.without_secrets(explained, of=execution, seen_by=seen_by)


def _readable(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a message, with its context as texts: names mark secrets in there, too."""
    context = members.get("context") or {}
    return {**members, "context": {name: _text(value) for name, value in context.items()}}


def _text(encoded: str) -> Any:
    """The content of base64, as JSON or text; the number of its bytes if it is neither."""
    try:
        content = base64.b64decode(encoded, validate=True)
        text = content.decode()
    except (binascii.Error, ValueError):
        return f"{len(encoded) * 3 // 4:,} bytes"
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in (None, {}, "")}
