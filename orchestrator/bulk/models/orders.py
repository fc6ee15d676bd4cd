"""Bulk orders. The ids of their rows are written down at ordering, so that what comes later is none
of them; how far an executor has come is one number, written with the effects."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import F, Q
from uuid_utils import compat as uuid_utils

from orchestrator.bulk.states import KINDS, ORDERS, TERMINAL, OrderState
from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.state_machine import MachineQuerySet
from orchestrator.core.words import Kind

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

IDS_OF_PART = 250
QUERY_MAX = 1_000
REASON_MAX = 200
WHY_MAX = 500
KEY_MAX = 200


class BulkOrderQuerySet(MachineQuerySet["BulkOrder"]):
    def visible_to(self, principal: Principal, permission: str = "bulk.read") -> BulkOrderQuerySet:
        """All of them for who has the permission everywhere; else one's own."""
        reach = authority.reach(principal, permission)
        if reach.is_everywhere:
            return self
        return self.filter(key_owner=principal.key_owner) if reach else self.none()

    def open(self) -> BulkOrderQuerySet:
        """Has not ended."""
        return self.filter(ended_at__isnull=True)

    def in_turn(self) -> BulkOrderQuerySet:
        """Open ones, those that have waited longest for a batch first: a small one does not wait
        for a large one."""
        return self.open().order_by(F("worked_at").asc(nulls_first=True), "pk")

    def not_just_begun(self, now: datetime, moment: timedelta) -> BulkOrderQuerySet:
        """Without those of which a batch began within this moment and has not ended well."""
        just = Q(tries__gt=0, worked_at__gt=now - moment, worked_at__lt=now + moment)
        return self.exclude(just)


class BulkOrder(models.Model):
    """One verb on all rows that matched a search when it was ordered."""

    State = OrderState
    machine = ORDERS

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    verb = models.CharField(max_length=20)
    query = models.CharField(
        max_length=QUERY_MAX, blank=True, help_text="The search; empty if rows were named."
    )
    ids_digest = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of the rows that were named, if any were."
    )
    looked_from = models.DateTimeField(
        null=True, help_text="A search that scans and names no time looked back to here."
    )
    reason = models.CharField(max_length=REASON_MAX)
    resolution = models.CharField(max_length=20, blank=True, help_text="Of investigations.")
    ordered_by = models.CharField(max_length=150)
    identity_number = models.BigIntegerField(
        null=True, help_text="Whose present grants count, too; none for the terminal."
    )
    key_owner = models.BigIntegerField(help_text="The number of the orderer's idempotency keys.")
    grants = models.JSONField(help_text="What the orderer was granted at ordering, in layers.")
    idempotency_key = models.CharField(  # noqa: DJ001 - none is not empty
        max_length=KEY_MAX, null=True, help_text="Ordering again with it returns this order."
    )

    state = models.CharField(
        max_length=7,
        choices=[(state.value, state.value) for state in OrderState],
        default=OrderState.ORDERED,
    )
    fence = models.PositiveIntegerField(default=0)
    matched = models.PositiveIntegerField()
    position = models.PositiveIntegerField(default=0, help_text="Rows that are worked off.")
    refused = models.PositiveIntegerField(default=0)
    tries = models.PositiveIntegerField(
        default=0, help_text="Of the batch at this position; counted before it begins."
    )
    last_error = models.CharField(max_length=WHY_MAX, blank=True)
    end_reason = models.CharField(max_length=WHY_MAX, blank=True)
    ended_by = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    worked_at = models.DateTimeField(null=True, help_text="When its latest batch began.")
    ended_at = models.DateTimeField(null=True)

    objects: ClassVar[BulkOrderQuerySet] = BulkOrderQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        parts: RelatedManager[BulkPart]
        refusals: RelatedManager[Refusal]

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(
                "worked_at", "id", name="bulk_order_open", condition=Q(ended_at__isnull=True)
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "key_owner",
                "idempotency_key",
                name="bulk_order_of_owner_and_key_is_unique",
                condition=Q(idempotency_key__isnull=False),
            ),
            models.CheckConstraint(
                name="bulk_order_state_is_known",
                condition=Q(state__in=[state.value for state in OrderState]),
            ),
            models.CheckConstraint(
                name="bulk_order_is_ended_if_and_only_if_its_state_is",
                condition=Q(ended_at__isnull=False, state__in=sorted(TERMINAL))
                | (Q(ended_at__isnull=True) & ~Q(state__in=sorted(TERMINAL))),
            ),
            models.CheckConstraint(
                name="bulk_order_has_refused_at_most_what_it_looked_at",
                condition=Q(refused__lte=F("position"), position__lte=F("matched")),
            ),
            models.CheckConstraint(
                name="bulk_order_is_done_if_all_of_it_is",
                condition=~Q(state="done") | Q(position=F("matched")),
            ),
        ]

    def __str__(self) -> str:
        return f"bulk order {self.pk}"

    @property
    def is_open(self) -> bool:
        return self.state not in TERMINAL

    @property
    def begins_part(self) -> bool:
        """Return True if its position is the first of a part, or behind the last row."""
        return self.position % IDS_OF_PART == 0 or self.position == self.matched

    @property
    def done(self) -> int:
        """The rows for which the verb was carried out."""
        return self.position - self.refused

    @property
    def kind(self) -> Kind:
        return KINDS[self.state]

    def rate(self, now: datetime) -> float:
        """Rows a second, from its beginning to its end or until now."""
        if self.started_at is None:
            return 0.0
        seconds = ((self.ended_at or now) - self.started_at).total_seconds()
        return self.position / seconds if seconds > 0 else 0.0

    def ids(self, size: int) -> list[UUID]:
        """The next ids at its position, in the order of primary keys; at most as many as the rest
        of a part has."""
        part, offset = divmod(self.position, IDS_OF_PART)
        listed: list[str] = self.parts.get(number=part).ids
        return [UUID(each) for each in listed[offset : offset + size]]


class BulkPart(models.Model):
    """Some of the ids of an order, written at ordering."""

    order = models.ForeignKey(BulkOrder, on_delete=models.CASCADE, related_name="parts")
    order_id: UUID
    number = models.PositiveIntegerField()
    ids = models.JSONField()

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint("order", "number", name="bulk_part_of_order_is_unique"),
        ]

    def __str__(self) -> str:
        return f"part {self.number} of {self.order_id}"


class Refusal(models.Model):
    """A row for which the verb was not carried out, and why. Written with the mark, never
    changed."""

    order = models.ForeignKey(BulkOrder, on_delete=models.CASCADE, related_name="refusals")
    order_id: UUID
    position = models.PositiveIntegerField()
    subject_id = models.UUIDField()
    kind = models.CharField(max_length=50)
    why = models.CharField(max_length=WHY_MAX)
    at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint("order", "position", name="bulk_refusal_of_row_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.subject_id}: {self.why}"
