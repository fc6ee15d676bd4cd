"""The messages that are owed to the sender of a task message, made of a ticket and its execution.

Nothing is stored but what came and how it ended, so that a second telling makes the same messages,
with the same ids.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from orchestrator.core import json_values
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from orchestrator.queues.gates import codecs, tracking
from orchestrator.queues.gates import headers as names
from orchestrator.queues.gates.shape import VERSIONS, as_base64

SUCCESS, FAILURE, EXCEPTION, INVALID_TASK = (
    "RESULT_SUCCESS",
    "RESULT_FAILURE",
    "RESULT_EXCEPTION",
    "INVALID_TASK",
)
OWN_WORD = frozenset({Reason.ACTION_FAILED, Reason.TRY_AGAIN})
"""The action itself said that it failed."""
LOST = frozenset({Reason.WORKER_LOST, Reason.PROCESS_LOST, Reason.WORKER_STOPPED})
"""Nobody saw how the attempt ended."""
OURS = ("user_id", "delivery_mode", "cluster_id", "application_headers")
"""Properties that a copy does not have of its original: the broker refuses another's `user_id`."""

PAUSED, INACTIVE = "paused", "inactive"
"""The states that a ticket knows of its job, see `job_status`."""


class Kind(enum.StrEnum):
    ANSWER = "answer"
    REJECTED = "rejected"
    REPORT = "report"
    RETRY = "retry"
    MOVED = "paused"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A message that is owed."""

    kind: Kind
    queue: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def moves(self) -> bool:
        """True if the task itself goes to another queue with it, to come back from there."""
        return self.kind in (Kind.RETRY, Kind.MOVED)

    @property
    def is_required(self) -> bool:
        """False if its loss is nothing to the sender: nobody may follow a job."""
        return self.kind != Kind.REPORT


class GateTerms(Protocol):
    """The terms of a gate for its answers."""

    input_queue: str
    rejected_queue: str
    output_queue: str
    paused_queue: str
    retry_by: str
    max_priority: int
    classifiers: Mapping[str, Any]
    codec: str
    reply_to: bool
    allow_loop: bool
    answer_inactive: bool
    service_name: str
    service_version: str

    @property
    def retries_go_to(self) -> str: ...


class Came(Protocol):
    """A ticket."""

    pk: Any
    task_id: str
    tries: int
    body: Any
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    envelope: Mapping[str, Any]
    refusal: Mapping[str, Any] | None
    job_status: str


class Ended(Protocol):
    """An execution that is over."""

    id: UUID
    status: str
    reason: str
    attempt: int
    retry_count: int
    cancel_reason: str
    result: Any


def replies_of(
    came: Came, ended: Ended | None, *, gate: GateTerms, retry_limit: int
) -> list[Reply]:
    """Make the messages that are owed for a ticket; the answer comes first. None at a dead end.

    `ended` is None for a refused message only.
    """
    making = _Making(came, ended, gate, retry_limit)
    return [*making.answers(), *making.copies(), *making.reports()]


def why_refused(refusal: Mapping[str, Any]) -> str:
    """The reason of a refusal, in a word: INVALID, EXCEEDED, or what the message died of."""
    return str(refusal["rejected"] or refusal.get("died_of", ""))


def goes_back(came: Came, ended: Ended, *, gate: GateTerms, retry_limit: int) -> bool:
    """Return True if a lost attempt is repeated through the retry queue."""
    return _Making(came, ended, gate, retry_limit).goes_back


def answer_queue(properties: Mapping[str, Any], gate: GateTerms) -> str:
    """The queue for the answer; empty if there is none. That of the message, if the gate allows it
    and it is not one that the gate itself reads."""
    own = properties.get("reply_to") if gate.reply_to else None
    read = {gate.input_queue, gate.retries_go_to}
    if isinstance(own, str) and own and (gate.allow_loop or own not in read):
        return own
    return gate.output_queue


@dataclass(frozen=True)
class _Making:
    came: Came
    ended: Ended | None
    gate: GateTerms
    retry_limit: int

    # --- what happened ---

    @property
    def is_lost(self) -> bool:
        return self.ended is not None and self.ended.reason in LOST

    @property
    def lost_starts(self) -> int:
        if self.ended is None:
            return self.came.tries
        return self.ended.retry_count + self.is_lost

    @property
    def goes_back(self) -> bool:
        """True if a lost attempt is repeated through the retry queue."""
        by_queue = self.gate.retry_by == "queue" and self.is_lost
        return by_queue and self.came.tries < self.retry_limit

    @property
    def goes_to_paused(self) -> bool:
        return (
            self.came.job_status == PAUSED and self._is_cancelled and bool(self.gate.paused_queue)
        )

    @property
    def _is_cancelled(self) -> bool:
        return self.ended is not None and self.ended.status == ExecutionStatus.CANCELLED

    @property
    def is_silent(self) -> bool:
        """True if the sender's job is over: nobody waits for an answer."""
        inactive = self.came.job_status == INACTIVE and self._is_cancelled
        return inactive and not self.gate.answer_inactive

    @property
    def rejected_as(self) -> str:
        """The reason why a copy goes to the rejected queue; empty if none does."""
        if self.came.refusal is not None:
            return str(self.came.refusal["rejected"])
        return names.EXCEEDED if self.is_lost and not self.goes_back else ""

    @property
    def task_status(self) -> str:
        if self.came.refusal is not None:
            is_invalid = self.came.refusal["rejected"] == names.INVALID
            return INVALID_TASK if is_invalid else EXCEPTION
        assert self.ended is not None
        if self.ended.status == ExecutionStatus.COMPLETED:
            return SUCCESS
        if self._is_cancelled or (
            self.ended.status == ExecutionStatus.FAILED and self.ended.reason in OWN_WORD
        ):
            return FAILURE
        return EXCEPTION

    # --- messages ---

    def answers(self) -> Iterator[Reply]:
        if self.goes_back:
            headers = self._counted(names.carried(self.came.headers), always=True)
            yield self._original(Kind.RETRY, self.gate.retries_go_to, headers)
            return
        if self.goes_to_paused:
            headers = self._counted(names.carried(self.came.headers))
            yield self._original(Kind.MOVED, self.gate.paused_queue, headers)
            return
        queue = answer_queue(self.came.properties, self.gate)
        if queue and not self.is_silent:
            headers = self._counted(names.carried_to_answer(self.came.headers))
            yield Reply(
                kind=Kind.ANSWER,
                queue=queue,
                body=json.dumps(self._answer(queue)).encode(),
                headers=headers | self._found_by(),
                properties=self._properties(Kind.ANSWER),
            )

    def copies(self) -> Iterator[Reply]:
        if self.rejected_as and self.gate.rejected_queue:
            headers = self._counted(names.carried(self.came.headers))
            headers |= {names.REJECTED: self.rejected_as} | self._found_by()
            yield self._original(Kind.REJECTED, self.gate.rejected_queue, headers)

    def reports(self) -> Iterator[Reply]:
        """CAF's reports about a job's task; not to our own input queue, which would be a loop."""
        followed = self.came.envelope.get("tracking") or {}
        pipe, task = followed.get("trackingPipe"), followed.get("jobTaskId")
        own = (self.gate.input_queue.casefold(), self.gate.retries_go_to.casefold())
        if not pipe or not task or pipe.casefold() in own or self.goes_to_paused or self.is_silent:
            return
        reports = [*self._retried(task), self._reported(task, followed)]
        yield Reply(
            kind=Kind.REPORT,
            queue=pipe,
            body=json.dumps(self._report(pipe, tracking.encoded(reports))).encode(),
            properties={"content_type": "application/json"} | self._identity(Kind.REPORT),
        )

    # --- their parts ---

    def _answer(self, queue: str) -> dict[str, Any]:
        envelope = self.came.envelope
        classifier = envelope.get("taskClassifier") or ""
        chosen = self.gate.classifiers.get(classifier) or self.gate.classifiers.get("*") or {}
        followed = envelope.get("tracking")
        if followed and tracking.ends_at(followed, queue):
            followed = None
        return {
            "version": envelope.get("version", VERSIONS[-1]),
            "taskId": self.came.task_id,
            "taskClassifier": chosen.get("answer") or classifier,
            "taskApiVersion": envelope.get("taskApiVersion", 1),
            "taskData": as_base64(self._data()),
            "taskStatus": self.task_status,
            "context": dict(envelope.get("context") or {}),
            "to": queue,
            "tracking": followed,
            "sourceInfo": self._source(),
            "correlationId": envelope.get("correlationId"),
            "priority": envelope.get("priority"),
        }

    def _data(self) -> bytes:
        if self.ended is not None and self.ended.status == ExecutionStatus.COMPLETED:
            return codecs.encoded(self.ended.result, codec=self.gate.codec)
        return json.dumps(self._explained()).encode()

    def _explained(self) -> dict[str, Any]:
        if self.came.refusal is not None:
            problems = list(self.came.refusal.get("problems", []))
            message = "; ".join(
                f"{each['pointer']}: {each['text']}" if each["pointer"] else each["text"]
                for each in problems
            )
            return {
                "error": why_refused(self.came.refusal),
                "message": message,
                "problems": problems,
            }
        assert self.ended is not None
        result = self.ended.result if isinstance(self.ended.result, Mapping) else {}
        message = result.get("message") or self.ended.cancel_reason or self._reason_text()
        return {"error": self.ended.reason, "message": str(message)}

    def _reason_text(self) -> str:
        assert self.ended is not None
        try:
            return Reason(self.ended.reason).text
        except ValueError:  # of a later release
            return self.ended.reason

    def _source(self) -> dict[str, str]:
        return {"name": self.gate.service_name, "version": self.gate.service_version}

    def _retried(self, task: str) -> list[dict[str, Any]]:
        """A report for each attempt that was lost here before the last one."""
        if self.ended is None:
            return []
        numbers = range(self.came.tries + 1, self.ended.retry_count + 1)
        return [tracking.report(task, tracking.RETRY, retries=number) for number in numbers]

    def _reported(self, task: str, followed: Mapping[str, Any]) -> dict[str, Any]:
        if self.goes_back:
            return tracking.report(task, tracking.RETRY, retries=self.lost_starts)
        if self.task_status in (EXCEPTION, INVALID_TASK):
            why = self._explained()
            failure = {
                "failureId": str(why["error"]),
                "failureSource": self.gate.service_name,
                "failureMessage": str(why["message"]),
            }
            return tracking.report(task, tracking.FAILED, failure=failure)
        ends = tracking.ends_at(followed, answer_queue(self.came.properties, self.gate) or None)
        return tracking.report(task, tracking.COMPLETE if ends else tracking.PROGRESS)

    def _report(self, pipe: str, data: bytes) -> dict[str, Any]:
        return {
            "version": VERSIONS[-1],
            "taskId": self._name(Kind.REPORT),
            "taskClassifier": tracking.REPORT_CLASSIFIER,
            "taskApiVersion": tracking.REPORT_VERSION,
            "taskData": as_base64(data),
            "taskStatus": "NEW_TASK",
            "context": {},
            "to": pipe,
            "tracking": None,
            "sourceInfo": self._source(),
            "correlationId": self.came.envelope.get("correlationId"),
        }

    def _original(self, kind: Kind, queue: str, headers: Mapping[str, Any]) -> Reply:
        properties = carried_properties(self.came.properties)
        if kind == Kind.REJECTED:
            properties.pop("expiration", None)  # it is kept for somebody to look at
        return Reply(
            kind=kind,
            queue=queue,
            body=bytes(self.came.body or b""),
            headers=headers,
            properties=properties,
        )

    def _counted(self, headers: dict[str, Any], *, always: bool = False) -> dict[str, Any]:
        if self.lost_starts or always:
            return counted(headers, self.lost_starts, self.retry_limit)
        return headers

    def _found_by(self) -> dict[str, Any]:
        if self.ended is None:
            return {}
        return {
            names.EXECUTION: str(self.ended.id),
            names.ATTEMPT: self.ended.attempt,
            names.REASON: self.ended.reason,
        }

    def _properties(self, kind: Kind) -> dict[str, Any]:
        properties = {"content_type": "application/json"} | self._identity(kind)
        priority = self.came.properties.get("priority")
        if json_values.is_whole(priority):
            properties["priority"] = max(0, min(int(priority or 0), self.gate.max_priority or 255))
        return properties

    def _identity(self, kind: Kind) -> dict[str, Any]:
        """A copy of a message has the same id, so that its receiver can drop it."""
        identity = {"message_id": self._name(kind)}
        correlation = self.came.properties.get("correlation_id")
        return identity if correlation is None else identity | {"correlation_id": correlation}

    def _name(self, kind: Kind) -> str:
        about = f"ticket-{self.came.pk}" if self.ended is None else str(self.ended.id)
        return f"{about}.{kind}"


def counted(headers: Mapping[str, Any], tries: int, limit: int) -> dict[str, Any]:
    """These headers, with the starts that were lost and the limit that applied."""
    return {**headers, names.RETRY: tries, names.RETRY_LIMIT: limit}


def carried_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties for a copy of a message, from how a ticket keeps them."""
    kept = {name: value for name, value in properties.items() if name not in OURS}
    if isinstance(timestamp := kept.get("timestamp"), str):
        try:
            kept["timestamp"] = datetime.fromisoformat(timestamp)
        except ValueError:
            del kept["timestamp"]
    return kept
