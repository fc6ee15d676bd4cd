"""Bulk orders: order, list, show, stop."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.bulk import matching, ordering, verbs
from orchestrator.bulk.models import BulkOrder
from orchestrator.bulk.models.orders import KEY_MAX, QUERY_MAX, REASON_MAX
from orchestrator.bulk.ordering import Wish
from orchestrator.bulk.shown import orders as shown
from orchestrator.bulk.shown.orders import ForeseenOut, OrderOut, RefusalOut
from orchestrator.bulk.states import OrderState
from orchestrator.bulk.verbs import VERBS
from orchestrator.core import cursors
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, Caller, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.errors import MusterError, Refused
from orchestrator.core.search import NotUnderstood

router = Router(tags=["bulk orders"])


class OrderPage(pages.Page):
    items: list[OrderOut]


class RefusalPage(pages.Page):
    items: list[RefusalOut]


class OrderQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    state: list[OrderState] = Field([], description="May be repeated; any of them matches.")


class NewOrder(BaseModel):
    """One verb for all rows that match a search, or for those that are named."""

    model_config = ConfigDict(extra="forbid")

    verb: str = Field(max_length=20, description=f"One of {', '.join(VERBS)}.")
    query: pages.Text = Field(
        "",
        max_length=QUERY_MAX,
        examples=["status:failed action:core.fail created:<1h"],
        description="Which rows, in the language of docs/search.md; for investigations and steps "
        "see docs/bulk.md.",
    )
    ids: list[UUID] = Field(
        [], max_length=ordering.IDS_MAX, description="Instead of a search: these rows."
    )
    reason: pages.Text = Field(
        "", max_length=REASON_MAX, description="Kept with each row. Needed, but for a dry run."
    )
    resolution: str = Field("", max_length=20, description="For `close`: how they are closed.")
    up_to: UUID | None = Field(
        None, description="The `up_to` of a dry run: what came later is left out."
    )
    at_most: int | None = Field(
        None, ge=0, description="Order nothing if more rows match: `matched` of a dry run."
    )
    idempotency_key: pages.Text | None = Field(
        None,
        min_length=1,
        max_length=KEY_MAX,
        description="A second request with the same key returns the first order.",
    )
    dry_run: bool = Field(False, description="Only count: nothing is ordered.")

    @property
    def wish(self) -> Wish:
        values: dict[str, Any] = self.model_dump(exclude={"dry_run"})
        return Wish(**values)


class BulkOrderStop(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    reason: pages.Text = Field(min_length=1, max_length=REASON_MAX)


@router.post(
    "",
    auth=needs("bulk.order"),
    response=documented(403, 409, _201=OrderOut, _200=OrderOut | ForeseenOut),
)
def order_in_bulk(request: AuthenticatedRequest, new: Body[NewOrder]) -> HttpResponse:
    """Order one verb for all rows that match now: 201, or 200 for a dry run and for the order that
    this idempotency key has made.

    What comes later is not touched. Executors work it off; what no longer matches when its turn
    comes is refused, and listed.
    """
    caller = request.auth
    try:
        if new.dry_run:
            found = ordering.foresee(new.wish, principal=caller.principal, now=caller.now)
            return reply(shown.foreseen(found, new.query))
        row = ordering.order(new.wish, principal=caller.principal, now=caller.now)
    except REFUSED as error:
        raise _invalid(error) from None
    return _reply(row, caller, status=201 if row.created_at == caller.now else 200,
                  location=f"{request.path}/{row.pk}")  # fmt: skip


@router.get("", auth=needs("bulk.read"), response=documented(422, _200=OrderPage))
def list_bulk_orders(request: AuthenticatedRequest, query: Query[OrderQuery]) -> HttpResponse:
    """Bulk orders, newest first."""
    refuse_unknown_parameters(request, OrderQuery)
    caller = request.auth
    rows = BulkOrder.objects.visible_to(caller.principal)
    if query.state:
        rows = rows.filter(state__in=query.state)
    found, cursor = pages.newest_first(rows, query, key=UUID)
    items = [shown.shown(row, caller.now) for row in found]
    return reply(OrderPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/{order_id}", auth=needs("bulk.read"), response=documented(404, _200=OrderOut))
def get_bulk_order(request: AuthenticatedRequest, order_id: UUID) -> HttpResponse:
    """One bulk order."""
    return _reply(ordering.found(order_id, request.auth.principal), request.auth)


@router.get(
    "/{order_id}/refusals", auth=needs("bulk.read"), response=documented(404, 422, _200=RefusalPage)
)
def list_refusals(
    request: AuthenticatedRequest, order_id: UUID, query: Query[pages.PageQuery]
) -> HttpResponse:
    """The rows for which it was not carried out, in the order in which they were looked at."""
    refuse_unknown_parameters(request, pages.PageQuery)
    order = ordering.found(order_id, request.auth.principal)
    found, cursor = pages.oldest_first(order.refusals.all(), query, key=cursors.whole_number)
    items = [shown.refusal(row) for row in found]
    return reply(RefusalPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post(
    "/{order_id}/stop",
    auth=needs("bulk.order"),
    response=documented(403, 404, 409, _200=OrderOut),
)
def stop_bulk_order(
    request: AuthenticatedRequest, order_id: UUID, body: Body[BulkOrderStop]
) -> HttpResponse:
    """Stop it: the batch in process is finished, and none follows. What was done stays done."""
    caller = request.auth
    try:
        row = ordering.stop(
            order_id, principal=caller.principal, reason=body.reason, now=caller.now
        )
    except Refused as refused:
        raise _invalid(refused) from None
    return _reply(row, caller)


REFUSED = (
    Refused,
    NotUnderstood,
    verbs.UnknownVerb,
    matching.SearchNeeded,
    matching.MatchesTooMany,
    matching.LooksTooLong,
)


def _invalid(error: MusterError) -> Problem:
    return problems.invalid(_fields(error))


def _fields(error: MusterError) -> list[FieldProblem]:
    match error:
        case Refused(refusals=refusals):
            return [FieldProblem(pointer=each.pointer, message=each.message) for each in refusals]
        case NotUnderstood(mistakes=mistakes):
            return [
                FieldProblem(
                    pointer="/query",
                    message=each.message,
                    position=each.start,
                    length=each.end - each.start,
                )
                for each in mistakes
            ]
    pointer = "/verb" if isinstance(error, verbs.UnknownVerb) else "/query"
    return [FieldProblem(pointer=pointer, message=str(error))]


def _reply(row: BulkOrder, caller: Caller, **values: Any) -> HttpResponse:
    now: datetime = caller.now
    return reply(shown.shown(row, now), **values)
