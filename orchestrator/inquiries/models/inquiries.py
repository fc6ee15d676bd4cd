"""Inquiries, their history, and the executions that they hold up."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Cast
from uuid_utils import compat as uuid_utils

from orchestrator.core import authority
from orchestrator.core.authority import WHOLE, Place, Principal
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Execution
from orchestrator.core.state_machine import MachineQuerySet
from orchestrator.inquiries.states import INQUIRIES, InquiryState

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

PURPOSE_MAX = 60
ANSWER_KEY_MAX = 200
IDEMPOTENCY_KEY_MAX = 200


def tree_of(execution: Execution) -> str:
    """The id that an execution and all that came of it have in common."""
    return execution.correlation_id or str(execution.pk)


class InquiryQuerySet(MachineQuerySet["Inquiry"]):
    def visible_to(
        self, principal: Principal, permission: str = "inquiries.read"
    ) -> InquiryQuerySet:
        """Those of packs for which the caller has a permission. An execution sees those of its own
        tree, and those that name its action."""
        reach = authority.reach(principal, permission)
        rows = self if reach.is_everywhere else self.filter(reach.condition(PACKS, "pack"))
        if principal.execution_id is None:
            return rows
        return rows._about_execution(principal.execution_id, principal.names_at(WHOLE))

    def _about_execution(self, execution_id: UUID, names: Collection[str]) -> InquiryQuerySet:
        own = Execution.objects.filter(pk=execution_id).only("correlation_id").first()
        condition = Q(tree=tree_of(own)) if own is not None else Q(pk__in=())
        # as text: SQLite cannot look into a list
        rows = self.alias(named=Cast("assignees", models.TextField()))
        for name in names:
            condition |= Q(named__contains=json.dumps(name))
        return rows.filter(condition)

    def open(self) -> InquiryQuerySet:
        """Nobody has answered, and nothing else has ended it."""
        return self.filter(ended_at__isnull=True)

    def overdue(self, now: datetime) -> InquiryQuerySet:
        """Open past the time in which it could be answered, the most overdue first."""
        return self.open().filter(expires_at__lte=now).order_by("expires_at", "pk")


class Inquiry(models.Model):
    """A question to people. It ends once: by an answer, by time, or by a cancel."""

    State = InquiryState
    machine = INQUIRIES

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    # without a constraint of the database: it outlives its execution
    asked_by_execution = models.ForeignKey(
        Execution, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="+",
        db_constraint=False, db_index=False, help_text="The execution that asks, if one does.",
    )  # fmt: skip
    asked_by_execution_id: UUID | None
    purpose = models.CharField(
        max_length=PURPOSE_MAX,
        help_text="Names it among those of its execution, which asks once for each purpose.",
    )
    pack = models.CharField(max_length=60, help_text="For scopes: that of the asking action.")
    asked_by = models.CharField(max_length=150, help_text="Whoever is behind the question.")
    asker_number = models.BigIntegerField(
        default=0, help_text="The same, as a number of the authorizer."
    )
    idempotency_key = models.CharField(  # noqa: DJ001 - none is not empty
        max_length=IDEMPOTENCY_KEY_MAX, null=True,
        help_text="Of a caller who is no execution: asking again with it is safe.",
    )  # fmt: skip
    tree = models.CharField(
        max_length=100, blank=True, help_text="What executions of the same tree have in common."
    )

    prompt = models.TextField()
    schema = models.JSONField(default=dict, help_text="JSON Schema of the response.")
    assignees = models.JSONField(
        default=list, help_text="Who may answer, by name or role; empty for all with permission."
    )
    allow_requester = models.BooleanField(default=False)
    on_timeout = models.CharField(
        max_length=8, choices=[("error", "error"), ("complete", "complete")], default="error"
    )
    default = models.JSONField(null=True, help_text="The response that a timeout stands for.")

    state = models.CharField(
        max_length=9,
        choices=[(state.value, state.value) for state in InquiryState],
        default=InquiryState.PENDING,
    )
    fence = models.PositiveIntegerField(default=0)
    response = models.JSONField(null=True)
    answered_by = models.CharField(max_length=150, blank=True)
    answered_at = models.DateTimeField(null=True)
    answer_key = models.CharField(  # noqa: DJ001 - none is not empty
        max_length=ANSWER_KEY_MAX, null=True, help_text="Repeating an answer with it is safe."
    )
    reason = models.CharField(max_length=500, blank=True, help_text="Why it was cancelled.")
    ended_by = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects: ClassVar[InquiryQuerySet] = InquiryQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        history: RelatedManager[InquiryRecord]
        waits: RelatedManager[InquiryWait]

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "inquiries"
        indexes = [
            models.Index(
                "expires_at", name="inquiry_open_by_expiry", condition=Q(ended_at__isnull=True)
            ),
            models.Index("state", "id", name="inquiry_by_state"),
        ]
        constraints = [
            models.UniqueConstraint(
                "asked_by_execution",
                "purpose",
                name="inquiry_of_execution_and_purpose_is_unique",
                condition=Q(asked_by_execution__isnull=False),
            ),
            models.UniqueConstraint(
                "asker_number",
                "idempotency_key",
                name="inquiry_of_asker_and_key_is_unique",
                condition=Q(idempotency_key__isnull=False),
            ),
            models.CheckConstraint(
                name="inquiry_state_is_known",
                condition=Q(state__in=[state.value for state in InquiryState]),
            ),
            models.CheckConstraint(
                name="inquiry_is_ended_if_and_only_if_its_state_is",
                condition=Q(ended_at__isnull=False, state__in=sorted(INQUIRIES.ended))
                | Q(ended_at__isnull=True, state="pending"),
            ),
            models.CheckConstraint(
                name="inquiry_is_responded_if_and_only_if_it_has_an_answer",
                condition=Q(state="responded", answered_at__isnull=False, response__isnull=False)
                | (Q(answered_at__isnull=True, response__isnull=True) & ~Q(state="responded")),
            ),
            # in the statement of the answer itself: too late is too late, whoever looked before
            models.CheckConstraint(
                name="inquiry_is_answered_before_it_expires",
                condition=Q(answered_at__isnull=True) | Q(answered_at__lt=F("expires_at")),
            ),
            models.CheckConstraint(
                name="inquiry_expires_after_its_creation",
                condition=Q(expires_at__gt=F("created_at")),
            ),
            models.CheckConstraint(
                name="inquiry_has_default_if_and_only_if_a_timeout_completes",
                condition=Q(on_timeout="complete", default__isnull=False)
                | Q(on_timeout="error", default__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"inquiry {self.pk}"

    @property
    def place(self) -> Place:
        """The pack of the asking action, for scopes."""
        return Place(PACKS, self.pack)

    @property
    def is_open(self) -> bool:
        return self.state == InquiryState.PENDING


class InquiryRecord(models.Model):
    """One transition that happened. Written with it, never changed."""

    inquiry = models.ForeignKey(Inquiry, on_delete=models.CASCADE, related_name="history")
    inquiry_id: UUID
    event = models.CharField(max_length=20)
    from_state = models.CharField(max_length=9)
    to_state = models.CharField(max_length=9)
    fence = models.PositiveIntegerField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=500, blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint("inquiry", name="inquiry_ends_once"),
        ]

    def __str__(self) -> str:
        return f"{self.from_state} -> {self.to_state} ({self.event})"


class InquiryWaitQuerySet(models.QuerySet["InquiryWait"]):
    def open(self) -> InquiryWaitQuerySet:
        """Its execution has not heard of the end of the inquiry."""
        return self.filter(resumed_at__isnull=True)


class InquiryWait(models.Model):
    """An execution that an inquiry holds up."""

    # without a constraint of the database, as executions are pruned by themselves
    execution = models.OneToOneField(
        Execution, primary_key=True, on_delete=models.DO_NOTHING, related_name="+",
        db_constraint=False,
    )  # fmt: skip
    execution_id: UUID
    inquiry = models.ForeignKey(Inquiry, on_delete=models.CASCADE, related_name="waits")
    inquiry_id: UUID
    since = models.DateTimeField()
    resumed_at = models.DateTimeField(
        null=True, help_text="When its execution ended, by the inquiry or before."
    )

    objects: ClassVar[InquiryWaitQuerySet] = InquiryWaitQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        indexes = [
            models.Index(
                "execution", name="inquiry_wait_open", condition=Q(resumed_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} waits for {self.inquiry_id}"
