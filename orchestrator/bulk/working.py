"""Work off orders, a batch at a time, in each executor.

A batch is one transaction: its effects, what it refused, and the mark after it. So whoever dies in
it leaves no half of it, and the next executor continues at the mark. The lock of the order's row is
what keeps two executors from one order; others skip it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import F

from orchestrator.bulk import orderers, verbs
from orchestrator.bulk.matching import SearchNeeded, Wanted
from orchestrator.bulk.models import BulkOrder, Refusal
from orchestrator.bulk.models.orders import WHY_MAX
from orchestrator.bulk.states import OrderState
from orchestrator.bulk.verbs import Act, Verb
from orchestrator.core import clock, database
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict, Forbidden, MusterError, NotFound, Refused
from orchestrator.core.search import NotUnderstood
from orchestrator.core.state_machine import transition

log = structlog.get_logger(__name__)

SHARE_SECONDS = 0.5
"""Of each second in which it looks, an executor works off orders for so long: the rest of it is
for scheduling, which shares its processor."""
BATCH_SECONDS = 0.25
"""A batch ends after so long, whatever its size: its rows are locked until then."""
LARGE_TRIES = 2
"""A batch that failed so often is done row by row."""
MOST_TRIES = 6
"""A row that failed so often is refused, so that the order reaches an end. Those in which it was
one of a large batch count."""
TO_THE_LOCK = timedelta(seconds=0.9)
"""From counting a try to the lock of the order takes milliseconds, and an executor that failed
pauses for longer."""

KINDS = ((NotFound, "gone"), (Forbidden, "forbidden"), (Refused, "refused"))


class NoLongerMatches(Conflict):
    """It matched when it was ordered, and does not match, or is gone, now."""

    kind = "no-longer-matches"


class KeepsFailing(MusterError):
    """Its batch failed again and again."""


def take(order_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Begin with what a message told; returns how many rows were looked at."""
    return look(now=now, actor=actor)


def look(*, now: datetime, actor: str) -> int:
    """Work off open orders in turn, for as long as this look may take; returns how many rows were
    looked at. Safe to run at once with others."""
    until, total = time.monotonic() + SHARE_SECONDS, 0
    while time.monotonic() < until:
        order = _begin(now=now, actor=actor)
        if order is None:
            break
        total += _work_on(order, now=now, actor=actor)
        now = clock.now()
    return total


def _begin(*, now: datetime, actor: str) -> BulkOrder | None:
    """Count a try of the order whose turn it is, before it begins; None if there is none that
    nobody works on.

    Who has just counted a try may not have the lock yet. A second executor would count a try that
    never begins, and too many of them refuse a row that never failed.
    """
    if not BulkOrder.objects.open().exists():
        return None
    with transaction.atomic():
        free = BulkOrder.objects.in_turn().not_just_begun(now, TO_THE_LOCK)
        order = free.select_for_update(skip_locked=True).first()
        if order is None:
            return None
        if order.state == OrderState.ORDERED:
            order = transition(order, "begin", now=now, actor=actor)
        BulkOrder.objects.filter(pk=order.pk).update(tries=F("tries") + 1, worked_at=now)
    return order


def _work_on(order: BulkOrder, *, now: datetime, actor: str) -> int:
    """Do a batch; returns how many rows were looked at. What failed is noted, and raised."""
    try:
        with transaction.atomic():
            # whoever vanishes with these locks delays ends of executions
            database.hold_briefly()
            rows = BulkOrder.objects.filter(pk=order.pk, state=OrderState.WORKING)
            held = rows.select_for_update(skip_locked=True).first()
            return 0 if held is None else _Batch(held, now, actor).work()
    except Exception as error:
        BulkOrder.objects.open().filter(pk=order.pk).update(last_error=repr(error)[:WHY_MAX])
        raise


class _Batch:
    """One batch of an order whose row is locked."""

    def __init__(self, order: BulkOrder, now: datetime, actor: str) -> None:
        self.order = order
        self.now = now
        self.actor = actor
        self.verb: Verb
        self.principal: Principal
        self.wanted: Wanted | None = None
        self.refusals: list[Refusal] = []

    def work(self) -> int:
        """Steps: 1. find the verb, who ordered it, and what the search means; 2. do
        the next rows one by one, each if it still matches, until the time is up; 3. write what was
        refused and the mark; 4. end the order after its last row."""
        order = self.order
        try:
            self._prepare()
        except (verbs.UnknownVerb, orderers.OrdererIsGone, NotUnderstood, SearchNeeded) as error:
            self._end("fail", str(error))
            return 0
        is_alone = order.tries > LARGE_TRIES and self.verb.rows_at_once > 1
        has_given_up = order.tries > MOST_TRIES
        looked_at = self._do(order.ids(1 if is_alone else self.verb.rows_at_once))
        Refusal.objects.bulk_create(self.refusals)
        order.position += looked_at
        order.refused += len(self.refusals)
        # the row that failed is still ahead: a large batch would fail twice more at each row
        goes_on_alone = is_alone and not has_given_up and not order.begins_part
        order.tries, order.last_error = LARGE_TRIES if goes_on_alone else 0, ""
        if goes_on_alone:
            # its tries are of before: it may go on at once
            order.worked_at = self.now - TO_THE_LOCK
        order.save(update_fields=["position", "refused", "tries", "last_error", "worked_at"])
        if order.position == order.matched:
            self._end("finish", "")
        return looked_at

    def _prepare(self) -> None:
        """Whoever ordered may do less now, and the search is read with what it meant at ordering:
        its times count from then."""
        order = self.order
        self.verb = verbs.named(order.verb)
        self.principal = orderers.principal_of(order)
        if order.query:
            self.wanted = self.verb.noun.wanted(
                order.query, (), principal=self.principal, now=order.created_at
            )

    def _do(self, ids: Sequence[UUID]) -> int:
        if self.order.tries > MOST_TRIES:
            error = self.order.last_error or "its executor died"
            times = MOST_TRIES - LARGE_TRIES
            self._refuse(0, ids[0], KeepsFailing(f"Failed {times} times or more: {error}"))
            return 1
        until = time.monotonic() + BATCH_SECONDS
        for number, id in enumerate(ids):
            if number and time.monotonic() > until:
                return number
            try:
                # what a refused row has written is undone, the others stay
                with transaction.atomic():
                    self._act(id)
            except MusterError as error:
                self._refuse(number, id, error)
        return len(ids)

    def _act(self, id: UUID) -> None:
        noun = self.verb.noun
        wanted = self.wanted or noun.wanted("", [id], principal=self.principal, now=self.now)
        row = wanted.still(id, lock=self.verb.locks)
        if row is None:
            state = noun.state_of(id, self.principal)
            raise NoLongerMatches(f"It is {state} now, and no longer matches" if state else None)
        self.verb.require(self.principal, row)
        self.verb.do(Act(self.order, self.principal, id, row, self.now))

    def _refuse(self, number: int, id: UUID, error: MusterError) -> None:
        self.refusals.append(
            Refusal(
                order=self.order,
                position=self.order.position + number,
                subject_id=id,
                kind=kind_of(error),
                why=why(error)[:WHY_MAX],
                at=self.now,
            )
        )

    def _end(self, event: str, reason: str) -> None:
        transition(
            self.order,
            event,
            now=self.now,
            actor=self.actor,
            reason=reason[:WHY_MAX],
            ended_by=self.actor,
        )
        log.info("bulk order ended", order_id=str(self.order.pk), outcome=event)


def kind_of(error: MusterError) -> str:
    """A code for programs."""
    if isinstance(error, Conflict):
        return error.kind
    return next((kind for base, kind in KINDS if isinstance(error, base)), "failed")


def why(error: MusterError) -> str:
    """The text of a refusal, without values of parameters: whoever reads it may not see them."""
    if not isinstance(error, Refused):
        return str(error)
    return "; ".join(
        f"{each.pointer}: does not fit the schema of now"
        if each.pointer.startswith("/parameters/")
        else each.message
        for each in error.refusals
    )
