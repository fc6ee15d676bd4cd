"""An execution: as JSON, as facts, as a timeline. Secrets are removed here, for all faces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Left
from pydantic import Field

from orchestrator.core import authority, contents, fleet, frame, words
from orchestrator.core.authority import Principal
from orchestrator.core.contents import Secrets
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent, add_actions
from orchestrator.core.models.prepared import Prepared
from orchestrator.core.reasons import BEGAN, BEGAN_BEFORE, WITHOUT_PAYLOAD, Reason
from orchestrator.core.redaction import redacted
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import (
    At,
    Coded,
    Due,
    Fact,
    Happening,
    Link,
    Prose,
    Search,
    State,
    said,
)
from orchestrator.core.states import OPEN, WHO_MOVES_IT_ON, ExecutionStatus

S = ExecutionStatus

DUE: dict[str, tuple[str, Collection[ExecutionStatus]]] = {
    "next_retry_at": ("Not scheduled before", (S.REQUESTED, S.SCHEDULING)),
    "start_by": ("Starts by", (S.SCHEDULED,)),
    "run_deadline_at": ("Action ends by", (S.RUNNING, S.CANCELING)),
    "deadline_at": ("Over by", OPEN),
}
"""Each due time, and the statuses in which it acts; the others have passed or have not started."""

_history = Prepared(lambda id: ExecutionEvent.objects.of(id))
_letters = Prepared(lambda id: DLQEntry.objects.about(id).without_contents())

KNOWN = "_known_secrets"
"""The attribute where an instance keeps what apps know to be secret in it."""

SAID = "_message"
"""The attribute where an instance keeps its message without secrets."""

MESSAGE_CHARACTERS = 20_000

STAMPS = {
    "created_at": "Created",
    "scheduled_at": "Dispatched",
    "started_at": "Started",
    "cancel_requested_at": "Cancel requested",
    "ended_at": "Ended",
}


# --- as JSON -------------------------------------------------------------------------------------


class ExecutionSummary(Shown):
    """The facts that all answers tell of an execution."""

    id: UUID
    action_ref: str
    status: ExecutionStatus
    reason: str = Field(description="The reason of its end; empty while it is open.")
    cancel_reason: str = Field(description="Why it was cancelled, if that was said.")
    queue: str | None = Field(description="Its queue; null for the default one.")
    lane: str | None = Field(description="`input` or `retry`, in a queue with a name.")
    priority: int
    attempt: int
    retry_count: int
    worker_id: int | None = Field(description="The worker of its latest attempt.")
    pinned_worker_id: int | None
    timeout_seconds: float
    queue_ttl_ms: int | None
    scheduled_timeout_seconds: float | None
    wait_reason: str
    requested_by: str
    request_reason: str = Field(description="Why it was requested, if that was said.")
    correlation_id: str | None
    idempotency_key: str | None
    created_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    cancel_requested_at: datetime | None
    ended_at: datetime | None
    start_by: datetime | None
    run_deadline_at: datetime | None
    next_retry_at: datetime | None
    deadline_at: datetime


class ExecutionListed(ExecutionSummary):
    """An execution as lists show it, loaded with its worker."""

    worker: str | None = Field(
        validation_alias="worker_name", description="The name of the worker of its latest attempt."
    )


class ExecutionOut(ExecutionSummary):
    """An execution with its parameters and its result."""

    worker_selector: dict[str, str] = Field(
        validation_alias="wanted_labels", description="The request's, or else the action's."
    )
    retry_policy: dict[str, Any] = Field(
        validation_alias="wanted_retries", description="The request's, or else the action's."
    )
    parameters: Any = Field(
        description="An object; secrets are `***`, and all of it without `payloads.read`."
    )
    result: Any = Field(
        description="The action's return value, or error, message, failed_by. Secrets are `***`, "
        "and without `payloads.read` all of it, unless Muster wrote it."
    )


class HistoryEntry(Shown):
    """One transition that happened."""

    event: str
    from_status: str
    to_status: str
    attempt: int
    actor: str
    reason: str
    at: datetime


class LetterOut(Shown):
    """A DLQ entry about an execution."""

    dlq_entry_uuid: UUID
    attempt: int | None
    dlq_reason: str
    detail: str
    original_queue: str
    dlq_timestamp: datetime


class ExecutionDetail(ExecutionOut):
    """An execution with its history, oldest first."""

    worker: str | None = Field(description="The name of the worker of its latest attempt.")
    history: list[HistoryEntry]
    dead_letters: list[LetterOut] = Field(description="DLQ entries about it, newest first.")


def new(execution: Execution, *, seen_by: Principal) -> ExecutionOut:
    """Convert an execution that was just requested by itself: no app knows more of it."""
    execution.__dict__[KNOWN] = contents.UNKNOWN
    return whole(execution, seen_by=seen_by)


def whole(execution: Execution, *, seen_by: Principal) -> ExecutionOut:
    """Convert an execution."""
    # what is not loaded is read here, not by pydantic, which would make "not valid" of a database
    # that is away
    if missing := execution.get_deferred_fields():
        execution.refresh_from_db(fields=missing)
    if not Execution.action.is_cached(execution):
        add_actions([execution])
    shown = ExecutionOut.model_validate(execution)
    shown.parameters = parameters(execution, seen_by=seen_by)
    shown.result = result(execution, seen_by=seen_by)
    return shown


def detail(execution: Execution, *, seen_by: Principal) -> ExecutionDetail:
    """Convert an execution, loaded with its action and its worker, and add its history."""
    return ExecutionDetail.model_construct(
        **dict(whole(execution, seen_by=seen_by)),
        worker=execution.worker_name,
        history=[HistoryEntry.model_validate(event) for event in history(execution)],
        dead_letters=[LetterOut.model_validate(entry) for entry in letters(execution)],
    )


def parameters(execution: Execution, *, seen_by: Principal) -> Any:
    """Its parameters, without their secrets."""
    shown = contents.parameters(execution, secrets_of(execution))
    return authority.payload(shown, of=execution.place, seen_by=seen_by)


def result(execution: Execution, *, seen_by: Principal) -> Any:
    """Its result, without its secrets. What Muster itself says of an end, everybody sees who sees
    the execution."""
    shown = contents.result(execution, secrets_of(execution))
    return _of_the_end(shown, execution, seen_by)


def _of_the_end(said: Any, execution: Execution, seen_by: Principal) -> Any:
    # an open one may keep the result of an attempt that went before what its reason tells of
    if execution.is_terminal and execution.reason in WITHOUT_PAYLOAD:
        return said
    return authority.payload(said, of=execution.place, seen_by=seen_by)


def without_secrets(value: Any, *, of: Execution, seen_by: Principal) -> Any:
    """A further value that belongs to an execution, without what names or apps mark as secret."""
    shown = secrets_of(of).masker.value(redacted(value))
    return authority.payload(shown, of=of.place, seen_by=seen_by)


@dataclass(frozen=True)
class Content:
    """Something large that an app knows of an execution: a box of its page."""

    title: str
    facts: Sequence[Fact] = ()
    value: Any = None
    """As JSON, without secrets; None for none."""


def brought(execution: Execution, *, seen_by: Principal) -> list[Content]:
    """The contents that the apps know of it besides facts."""
    found = frame.collect(lambda app: app.execution_contents)
    return [content for bring in found for content in bring(execution, seen_by=seen_by)]


def message_in(result: Any) -> str:
    """The message in a result, which actions write as they like."""
    message = result.get("message") if isinstance(result, dict) else None
    return str(message) if message else ""


def secrets_of(execution: Execution) -> Secrets:
    """The secrets that apps know in it, asked once."""
    known: Secrets | None = execution.__dict__.get(KNOWN)
    if known is None:
        known = contents.secrets_of([execution]).get(execution.pk, contents.UNKNOWN)
        execution.__dict__[KNOWN] = known
    return known


def history(execution: Execution) -> list[ExecutionEvent]:
    """Every transition, oldest first."""
    return _history(execution.pk)


def letters(execution: Execution) -> list[DLQEntry]:
    """The DLQ entries about it, newest first."""
    return _letters(execution.pk)


def messages(executions: Collection[Execution], *, seen_by: Principal) -> dict[UUID, str]:
    """The messages about what went wrong with those of them that did not complete, by id, without
    secrets, and `***` for who may not see payloads, but where Muster itself says it."""
    said = messages_without_secrets(executions)
    return {
        each.pk: str(_of_the_end(said[each.pk], each, seen_by))
        for each in executions
        if each.pk in said
    }


def messages_without_secrets(executions: Collection[Execution]) -> dict[UUID, str]:
    """The same, whoever sees it: for what is derived from messages. Their results, which may be
    large, are not loaded, unless an action wrote more than a text."""
    failed = [e for e in executions if e.reason not in ("", Reason.SUCCEEDED)]
    # a search by messages has read those of the rows that it found
    unread = [execution for execution in failed if SAID not in execution.__dict__]
    read = _read_messages(unread) if unread else {}
    for execution in unread:
        execution.__dict__[SAID] = read.get(execution.pk, "")
    return {each.pk: text for each in failed if (text := each.__dict__[SAID])}


def _read_messages(failed: Collection[Execution]) -> dict[UUID, str]:
    said = KeyTextTransform("message", "result")
    # more than is shown: a secret that is cut in two would not be recognized
    rows = Execution.objects.filter(pk__in=[e.pk for e in failed]).order_by()
    found: dict[UUID, Any] = dict(rows.values_list("pk", Left(said, MESSAGE_CHARACTERS)))
    # names inside of it mark secrets, and a text cannot say which
    structured = [pk for pk, text in found.items() if text and text[0] in "{["]
    if structured:
        whole = rows.filter(pk__in=structured).values_list("pk", "result")
        found |= {pk: result["message"] for pk, result in whole if result}
    secrets = contents.secrets_of(failed)
    return {
        each.pk: contents.message(found[each.pk], secrets.get(each.pk, contents.UNKNOWN))
        for each in failed
        if found.get(each.pk)
    }


def parameters_of(
    executions: Collection[Execution], *, seen_by: Principal
) -> dict[UUID, dict[str, Any]]:
    """The parameters of several, by id, without their secrets. They are not loaded into these."""
    ids = [execution.pk for execution in executions]
    stored = dict(Execution.objects.filter(pk__in=ids).order_by().values_list("pk", "parameters"))
    secrets = contents.secrets_of(executions) if executions else {}
    return {
        each.pk: authority.payload(shown, of=each.place, seen_by=seen_by)
        for each in add_actions(list(executions))
        if each.pk in stored
        for shown in [
            contents.given(stored[each.pk], each.action, secrets.get(each.pk, contents.UNKNOWN))
        ]
    }


# --- as facts ------------------------------------------------------------------------------------


def situation(execution: Execution, now: datetime, *, seen_by: Principal) -> list[Fact]:
    """Its status, the reason, its worker, and the process that moves it on."""
    brought = [facts_of(execution) for facts_of in frame.collect(lambda app: app.execution_facts)]
    return said(
        [
            ("Execution", str(execution.pk)),
            ("Status", State(execution.status)),
            ("Action", Link(execution.action, execution.action_ref)),
            ("Attempt", attempts(execution)),
            *(fact for facts in brought for fact in facts),
            # an open execution keeps the reason of its last attempt
            (
                "Why" if execution.is_terminal else "Last attempt",
                why(execution.reason, began_before=began_before(execution)),
            ),
            # in the result of a success, `message` is a value like any other
            (
                "Message",
                None
                if execution.status == S.COMPLETED
                else message_in(result(execution, seen_by=seen_by)) or None,
            ),
            ("Cancelled because", execution.cancel_reason or None),
            ("Waits for", waits_for(execution, now)),
            ("Where", _where(execution, now)),
            ("Moved on by", Prose(WHO_MOVES_IT_ON[S(execution.status)])),
        ]
    )


def why(code: str, *, began_before: bool = False) -> Coded | str:
    """The reason as a sentence, the knowledge about the action, and the code to filter by."""
    if code not in Reason.__members__.values():
        return code
    reason = Reason(code)
    return Coded(f"{reason.text}. {known(reason, began_before=began_before)}.", code)


def known(reason: Reason, *, began_before: bool) -> str:
    """The words for what is known of the action when its last attempt has ended for this reason."""
    return BEGAN_BEFORE if began_before and reason not in BEGAN else reason.known.text


def began_before(execution: Execution) -> bool:
    """Return True if its last attempt did not begin, but an earlier one did, or may have."""
    if execution.reason in BEGAN or execution.started_at is None:
        return False
    return execution.history.filter(reason__in=BEGAN).exists()


def attempts(execution: Execution) -> str:
    """`2, after 1 retry`, or `not dispatched yet`."""
    if not execution.attempt:
        return "not dispatched yet"
    retries = execution.retry_count
    if not retries:
        return str(execution.attempt)
    return f"{execution.attempt}, after {retries} {'retry' if retries == 1 else 'retries'}"


HEALTH = "health: every worker that could run it pauses, as an action could not begin"


def waits_for(execution: Execution, now: datetime) -> str | None:
    """The reason why it waits; None if it has ended."""
    if execution.is_terminal:
        return None
    is_waiting = execution.status in (S.REQUESTED, S.SCHEDULING)
    if is_waiting and fleet.is_waiting_for_health(execution, now=now):
        return HEALTH
    return execution.wait_reason


def _where(execution: Execution, now: datetime) -> Link | str:
    worker = execution.worker
    if worker is None:
        return "at no worker"
    life = execution.worker_incarnation
    note = "has not claimed it" if life is None else f"in its life {life}"
    if not execution.is_terminal:
        note += f", {worker.heartbeat_state(now)}"
    return Link(worker, worker.name, note)


def due(execution: Execution, now: datetime) -> list[Fact]:
    """Its due times, and whether each acts now."""
    idle = "no longer acts" if execution.is_terminal else "does not act now"
    facts: list[Fact] = []
    for field, (name, statuses) in DUE.items():
        at: datetime | None = getattr(execution, field)
        if at is not None:
            note = "" if execution.status in statuses else idle
            if not note and field == "next_retry_at" and at <= now:
                note = "has come"
            facts.append((name, Due(at, now, note)))
    return facts


def times(execution: Execution, now: datetime) -> list[Fact]:
    """The times of its stages, and how long it ran."""
    facts: list[Fact] = []
    for field, name in STAMPS.items():
        at: datetime | None = getattr(execution, field)
        if at is not None:
            note = f"+{words.span((at - execution.created_at).total_seconds())}"
            if field == "created_at":
                note = f"{words.span((now - at).total_seconds())} ago"
            facts.append((name, At(at, note)))
    if execution.started_at:
        ran = ((execution.ended_at or now) - execution.started_at).total_seconds()
        facts.append(("Ran" if execution.ended_at else "Running for", words.span(ran)))
    return facts


def request(execution: Execution) -> list[Fact]:
    """The request."""
    pinned, correlation_id = execution.pinned_worker, execution.correlation_id
    return said(
        [
            ("Requested by", execution.requested_by),
            ("Requested because", execution.request_reason or None),
            ("Correlation id", Search(Execution, correlation_id) if correlation_id else None),
            ("Idempotency key", execution.idempotency_key),
            ("Release", _release(execution)),
            ("Queue", execution.subscription if execution.queue else None),
            ("Priority", execution.priority),
            ("Time limit", words.span(execution.timeout_seconds)),
            ("Longest wait in a queue", words.span(execution.dispatch_ttl_ms / 1000)),
            ("Pinned to", Link(pinned, pinned.name) if pinned else None),
            ("Workers with", words.labels(execution.wanted_labels)),
            ("Retry policy", words.labels(execution.wanted_retries)),
        ]
    )


def _release(execution: Execution) -> str | None:
    """`1.0 (3f2a4c5d6e7f)`, of the release that it has kept since its acceptance."""
    if execution.release_id is None:
        return None
    release = execution.action.release or execution.release
    return f"{release.version} ({release.short})" if release else None


# --- as a timeline -------------------------------------------------------------------------------


def timeline(execution: Execution, events: list[ExecutionEvent]) -> list[Happening]:
    """The transitions as lines, the request first, each with the time since the line before."""
    lines = [
        Happening(
            execution.created_at,
            0,
            "accepted",
            S.REQUESTED.value,
            execution.requested_by,
            why=execution.request_reason or None,
        )
    ]
    has_begun = False
    for event in events:
        lines.append(
            Happening(
                at=event.at,
                after_seconds=(event.at - lines[-1].at).total_seconds(),
                event=event.event,
                was=event.from_status,
                to=event.to_status,
                attempt=event.attempt,
                actor=event.actor,
                reason=event.reason,
                why=why(event.reason, began_before=has_begun),
            )
        )
        has_begun = has_begun or event.reason in BEGAN
    return lines
