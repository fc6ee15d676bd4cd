"""Executions: request, list, show, cancel."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.core import authority, executions, retry_policy, search
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, Caller, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem, invalid
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.authority import Principal
from orchestrator.core.executions import BOUNDS
from orchestrator.core.models import Execution, Worker, add_actions
from orchestrator.core.models.execution_sets import may_scan
from orchestrator.core.models.executions import (
    CANCEL_REASON_MAX,
    QUEUE_NAME_MAX,
    REQUEST_REASON_MAX,
    ExecutionQuerySet,
)
from orchestrator.core.models.prepared import Prepared
from orchestrator.core.reasons import Reason
from orchestrator.core.shown import executions as shown
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.executions import ExecutionDetail, ExecutionListed, ExecutionOut
from orchestrator.core.states import ExecutionStatus

router = Router(tags=["executions"])

_with_worker = Prepared(lambda id: Execution.objects.filter(pk=id).with_worker_names())

INT_MAX = 2**31 - 1

UNLISTED = ("parameters", "result", "worker_selector", "retry_policy")
"""Listings leave them out: the first two are up to megabytes each, and all are read from JSON."""


class Retry(BaseModel):
    """A retry policy, or a part of one: its reasons, attempts and delays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max_attempts: int | None = Field(None, description="1 means no retry.")
    backoff: str | None = Field(None, description=f"One of {', '.join(retry_policy.BACKOFFS)}.")
    backoff_base_ms: int | None = None
    max_backoff_ms: int | None = None
    jitter: float | None = Field(None, description="0.2 means between 80 and 120 % of the delay.")
    retry_on: list[str] | None = Field(
        None, description="Reasons; null for those after which a retry is known to be safe."
    )


class NewExecution(BaseModel):
    """One run of one action. The action's values stand in for missing fields."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action_ref: str = Field(
        "",
        max_length=130,
        examples=["core.echo"],
        description="May be left out for a queue with an action of its own.",
    )
    parameters: dict[str, Any] = Field({}, examples=[{"message": "hello"}])
    worker_id: int | None = Field(None, ge=1, le=INT_MAX, description="Run on this worker only.")
    queue: str | None = Field(
        None,
        min_length=1,
        max_length=QUEUE_NAME_MAX,
        description="Its queue; null for that of the action, or `default`.",
    )
    priority: int | None = Field(
        None,
        ge=BOUNDS["priority"][0],
        le=BOUNDS["priority"][1],
        description="Higher is scheduled first. null for that of its queue, or 0.",
    )
    timeout_seconds: float | None = Field(
        None,
        ge=BOUNDS["timeout_seconds"][0],
        le=BOUNDS["timeout_seconds"][1],
        description="The longest run of the action; at most 7 days.",
    )
    queue_ttl_ms: int | None = Field(
        None,
        ge=BOUNDS["queue_ttl_ms"][0],
        le=BOUNDS["queue_ttl_ms"][1],
        description="The longest wait in its worker's queue.",
    )
    scheduled_timeout_seconds: float | None = Field(
        None,
        ge=BOUNDS["scheduled_timeout_seconds"][0],
        le=BOUNDS["scheduled_timeout_seconds"][1],
        description="Longest time from a dispatch to its start; the shorter of this and the TTL.",
    )
    worker_selector: dict[str, str] | None = Field(
        None,
        examples=[{"zone": "b"}],
        description="Labels that its worker must have, in addition to those of its action.",
    )
    retry: Retry | None = Field(None, description="Changes to the action's policy.")
    deadline_seconds: float | None = Field(
        None,
        ge=BOUNDS["deadline_seconds"][0],
        le=BOUNDS["deadline_seconds"][1],
        description="The longest time from acceptance to its end.",
    )
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="A second request with the same key returns the first execution.",
    )
    correlation_id: str | None = Field(
        None, min_length=1, max_length=100, description="Your id, to find related executions."
    )
    reason: pages.Text = Field(
        "", max_length=REQUEST_REASON_MAX, description="Why; kept as `request_reason`."
    )


class NewExecutions(BaseModel):
    """Several executions: all of them are accepted, or none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    executions: list[NewExecution] = Field(min_length=1)


class Cancel(BaseModel):
    """The reason why an execution is cancelled."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: pages.Text = Field("", max_length=CANCEL_REASON_MAX, description="Kept with it.")


class LookedAt(Shown):
    """The part of the executions that a search without an index looked at for a page."""

    stopped_by: search.Stop = Field(
        description="`page`: it is full. `rows`, `seconds`, `window`: it looked at 100,000 "
        "executions, for 2 s, or at 24 hours; `next` leads on. `end`: there are no older ones."
    )
    back_to: datetime | None = Field(
        description="When the oldest execution was made that it looked at; null for the first one."
    )


class ExecutionPage(pages.Page):
    items: list[ExecutionListed]
    looked_at: LookedAt | None = Field(
        default=None, description="For `q`: null if an index led to the rows, and nothing is left."
    )


class AcceptedIds(Shown):
    """The ids of a bulk request, in its order."""

    ids: list[UUID]


NUMBER = re.compile(r"[-+]?[\d_.]+(e[-+]?\d+)?", re.IGNORECASE)


def _in_database_range(at: datetime) -> datetime:
    if not 1970 <= at.year <= 9000:
        raise ValueError("expected a year between 1970 and 9000")
    return at.astimezone(UTC)


def _no_number(at: Any) -> Any:
    # pydantic would read it as seconds since 1970, or milliseconds if it is large
    if isinstance(at, int | float) or (isinstance(at, str) and NUMBER.fullmatch(at.strip())):
        raise ValueError("expected a date and time with a time zone, such as 2030-01-31T12:00:00Z")
    return at


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_in_database_range)]


class ExecutionQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    q: pages.Text | None = Field(
        None,
        description="A search, such as `status:failed ran:>5s`: see docs/search.md.",
        examples=["status:failed ran:>5s"],
    )
    status: list[ExecutionStatus] = Field([], description="May be repeated; any of them matches.")
    action_ref: pages.Text | None = None
    worker: pages.Text | None = Field(None, description="Name or id of a worker.")
    reason: Reason | None = None
    correlation_id: pages.Text | None = None
    idempotency_key: pages.Text | None = None
    created_after: Moment | None = Field(
        None, description="At or after this time, with a time zone."
    )
    created_before: Moment | None = Field(None, description="Before this time, with a time zone.")
    open: bool | None = Field(None, description="true for open executions, false for ended ones.")


@router.post(
    "",
    auth=needs("executions.run"),
    response=documented(409, _201=ExecutionOut, _200=ExecutionOut),
)
def request_execution(request: AuthenticatedRequest, new: Body[NewExecution]) -> HttpResponse:
    """Accept one execution: 201, or 200 with the first one if the idempotency key was used."""
    caller = request.auth
    execution = executions.request(
        _wanted(new), requested_by=caller.name, principal=caller.principal, now=caller.now
    )
    return reply(
        shown.new(execution, seen_by=caller.principal),
        status=201 if execution.created_at == caller.now else 200,
        location=f"{request.path}/{execution.pk}",
    )


@router.post("/bulk", auth=needs("executions.run"), response=documented(409, _201=AcceptedIds))
def request_executions(request: AuthenticatedRequest, new: Body[NewExecutions]) -> HttpResponse:
    """Accept many executions in one transaction: all of them, or none."""
    _check_bulk(new.executions)
    try:
        rows = executions.request_many(
            [_wanted(each) for each in new.executions],
            requested_by=request.auth.name,
            principal=request.auth.principal,
            now=request.auth.now,
        )
    except executions.RequestRefused as refused:
        raise invalid(
            FieldProblem(
                pointer=f"/executions/{refusal.index}{refusal.pointer}", message=refusal.message
            )
            for refusal in refused.refusals
        ) from None
    return reply(AcceptedIds(ids=[row.pk for row in rows]), status=201)


@router.get("", auth=needs("executions.read"), response=documented(422, _200=ExecutionPage))
def list_executions(request: AuthenticatedRequest, query: Query[ExecutionQuery]) -> HttpResponse:
    """Executions, newest first, without `parameters` and `result`.

    For a worker, a reason, or a status that is an end, a page looks at 100,000 executions: it may
    be short, or even empty, and `next` leads on to older ones until it is null. So may a page of
    `q`; its `looked_at` says what it looked at.
    """
    refuse_unknown_parameters(request, ExecutionQuery)
    found = _found(query, request.auth)
    looked_at = None if found.looked_at is None else LookedAt.model_validate(found.looked_at)
    return reply(
        ExecutionPage(
            items=pages.each(ExecutionListed, found.rows),
            next=pages.link(request, found.next_cursor),
            next_cursor=found.next_cursor,
            looked_at=looked_at,
        )
    )


@router.get(
    "/{execution_id}",
    auth=needs("executions.read"),
    response=documented(404, _200=ExecutionDetail),
)
def get_execution(request: AuthenticatedRequest, execution_id: UUID) -> HttpResponse:
    """One execution, with its history."""
    principal = request.auth.principal
    execution = next(iter(add_actions(_with_worker(execution_id))), None)
    if execution is None or not authority.may(principal, "executions.read", execution.place):
        raise executions.UnknownExecution(f"No execution has the id {execution_id}")
    return reply(shown.detail(execution, seen_by=principal))


@router.post(
    "/{execution_id}/cancel",
    auth=needs("executions.cancel"),
    response=documented(404, 409, _202=ExecutionOut),
)
def cancel_execution(
    request: AuthenticatedRequest, execution_id: UUID, cancel: Body[Cancel | None] = None
) -> HttpResponse:
    """Cancel an execution: immediately before it runs, through its worker while it runs. Safe to
    repeat; the body, with the reason, may be left out."""
    caller = request.auth
    execution = executions.cancel(
        execution_id=execution_id,
        actor=caller.name,
        reason="" if cancel is None else cancel.reason,
        principal=caller.principal,
        now=caller.now,
    )
    return reply(shown.whole(execution, seen_by=caller.principal), status=202)


def _wanted(new: NewExecution) -> executions.NewExecution:
    retry = None if new.retry is None else new.retry.model_dump(exclude_unset=True)
    return executions.NewExecution(**dict(new) | {"retry": retry})


def _check_bulk(news: list[NewExecution]) -> None:
    limit = settings.MUSTER.bulk_limit
    if len(news) > limit:
        message = f"expected at most {limit} executions, found {len(news)}"
        raise invalid([FieldProblem(pointer="/executions", message=message)])
    first_use: dict[str, int] = {}
    repeated = [
        FieldProblem(
            pointer=f"/executions/{index}/idempotency_key",
            message=f"is the key of /executions/{first_use[new.idempotency_key]} too",
        )
        for index, new in enumerate(news)
        if new.idempotency_key and first_use.setdefault(new.idempotency_key, index) != index
    ]
    if repeated:
        raise invalid(repeated)


def _found(query: ExecutionQuery, caller: Caller) -> search.Found:
    """One page of the filters and, if there is one, of the search."""
    visible = Execution.objects.visible_to(caller.principal).with_worker_names()
    matching = _filtered(visible, query, seen_by=caller.principal).defer(*UNLISTED)
    scans, among = _may_scan(query), pages.created_within(Execution.objects.all(), query)
    if query.q is None:
        rows, cursor = pages.newest_first(matching, query, key=UUID, among=among if scans else None)
        return search.Found(rows, cursor)
    below = pages.below(query, key=UUID)
    wanted = _read(query.q, caller)
    return search.find(wanted, matching, limit=query.limit, below=below, among=among, scans=scans)


def _read(text: str, caller: Caller) -> search.Wanted:
    try:
        return search.read(text, search.Asked(caller.principal, caller.now))
    except search.NotUnderstood as error:
        raise invalid(
            FieldProblem(
                pointer="?q",
                message=mistake.message,
                position=mistake.start,
                length=mistake.end - mistake.start,
            )
            for mistake in error.mistakes
        ) from None


def _filtered(
    rows: ExecutionQuerySet, query: ExecutionQuery, *, seen_by: Principal
) -> ExecutionQuerySet:
    if query.status:
        rows = rows.in_status(*query.status)
    if query.open is not None:
        rows = rows.filter(ended_at__isnull=query.open)
    if query.worker is not None:
        rows = rows.filter(worker_id__in=_workers_called(query.worker, seen_by))
    equal = ("action_ref", "reason", "correlation_id", "idempotency_key")
    wanted = {name: value for name in equal if (value := getattr(query, name)) is not None}
    return pages.created_within(rows, query).filter(**wanted)


def _may_scan(query: ExecutionQuery) -> bool:
    has_few = query.correlation_id is not None or query.idempotency_key is not None
    return not (has_few or query.open) and may_scan(
        statuses=query.status, reason=query.reason, worker=query.worker
    )


def _workers_called(text: str, seen_by: Principal) -> list[int]:
    """The ids of the workers that have this name or id; there may be one of each. Only who sees all
    workers is told that there is none: to others, there may be one that they do not see."""
    called = Q(name=text)
    if text.isascii() and text.isdigit() and int(text[:12]) <= INT_MAX:
        called |= Q(pk=int(text[:12]))
    ids = list(Worker.objects.filter(called).values_list("pk", flat=True))
    if not ids and authority.reach(seen_by, "workers.read").is_everywhere:
        message = f"no worker has the name or id {text[:100]!r}"
        raise invalid([FieldProblem(pointer="?worker", message=message)])
    return ids
