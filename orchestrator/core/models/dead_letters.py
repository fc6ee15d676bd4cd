"""DLQ entries: what died or got stuck, where, why, what it was about, and who looked into it.

An entry is an investigation. It never changes its subject, and keeps what is known of it: the
subject may be of any app, or gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.db import connections, models
from django.db.models import Q
from uuid_utils import compat as uuid_utils

from orchestrator.core import words

REASON_KINDS = words.kinds(
    info="manual_dlq",
    warning="staleness_timeout worker_unavailable queue_ttl_expired",
    danger="max_retries_exceeded dependency_cycle_detected poison message_invalid "
    "retries_exceeded unroutable",
)
RESOLUTION_KINDS = words.kinds(
    success="manually_resolved", warning="pending", danger="permanently_failed"
)


class DLQEntryQuerySet(models.QuerySet["DLQEntry"]):
    def insert(self, entries: Sequence[DLQEntry]) -> list[DLQEntry]:
        """Insert in bulk; returns those that were not there yet, with their keys.

        An entry is there if its letter was kept before, or if its subject may have one pending
        entry at a time and has it.
        """
        if connections[self.db].vendor == "postgresql":
            keys = _insert_postgresql(self, entries, "ON CONFLICT DO NOTHING")
        else:
            keys = self._insert_portably(entries)
        return _opened(entries, keys)

    def insert_or_count(self, entries: Sequence[DLQEntry]) -> list[DLQEntry]:
        """Insert entries of letters that name no attempt, each fingerprint once; returns those that
        were not there yet. Where one is pending, its occurrences grow instead."""
        # in one order: two drains would otherwise wait for each other
        ordered = sorted(entries, key=lambda entry: entry.fingerprint or "")
        if connections[self.db].vendor == "postgresql":
            return _opened(ordered, _insert_postgresql(self, ordered, COUNT_ON_CONFLICT))
        pending = self.pending().filter(attempt__isnull=True)
        fingerprints = [entry.fingerprint for entry in ordered]
        known = dict(pending.filter(fingerprint__in=fingerprints).values_list("fingerprint", "pk"))
        for entry in ordered:
            if entry.fingerprint in known:
                pending.filter(pk=known[entry.fingerprint]).update(
                    occurrences=models.F("occurrences") + entry.occurrences,
                    last_seen_at=entry.last_seen_at,
                )
        new = [entry for entry in ordered if entry.fingerprint not in known]
        return _opened(new, self._insert_portably(new))

    def _insert_portably(self, entries: Sequence[DLQEntry]) -> dict[UUID, int]:
        DLQEntry.objects.using(self.db).bulk_create(entries, ignore_conflicts=True)
        # nobody tells which were ignored, but each brings an id of its own
        ids = [entry.dlq_entry_uuid for entry in entries]
        mine = self.filter(dlq_entry_uuid__in=ids).order_by()
        return dict(mine.values_list("dlq_entry_uuid", "pk"))

    def about(self, subject_id: UUID) -> DLQEntryQuerySet:
        """Of one subject."""
        return self.filter(subject_id=subject_id)

    def pending(self) -> DLQEntryQuerySet:
        """Nobody has closed them yet."""
        return self.filter(resolution_status=DLQEntry.Resolution.PENDING)

    def without_contents(self) -> DLQEntryQuerySet:
        """Leaves out what can be large, which no listing shows."""
        return self.defer("headers", "x_death", "snapshot", "raw_body", "metadata")


class DLQEntry(models.Model):
    """One investigation: of an execution whose message died, of garbage, of whatever is stuck."""

    class Reason(models.TextChoices):
        STALENESS_TIMEOUT = "staleness_timeout"
        MAX_RETRIES_EXCEEDED = "max_retries_exceeded"
        DEPENDENCY_CYCLE_DETECTED = "dependency_cycle_detected"
        WORKER_UNAVAILABLE = "worker_unavailable"
        POISON = "poison"
        MANUAL_DLQ = "manual_dlq"
        # of messages
        QUEUE_TTL_EXPIRED = "queue_ttl_expired"
        MESSAGE_INVALID = "message_invalid"
        RETRIES_EXCEEDED = "retries_exceeded"
        UNROUTABLE = "unroutable"

    class Resolution(models.TextChoices):
        PENDING = "pending"
        MANUALLY_RESOLVED = "manually_resolved"
        PERMANENTLY_FAILED = "permanently_failed"
        CANCELLED = "cancelled"

    CLOSINGS = (
        Resolution.MANUALLY_RESOLVED,
        Resolution.PERMANENTLY_FAILED,
        Resolution.CANCELLED,
    )

    dlq_entry_uuid = models.UUIDField(unique=True, default=uuid_utils.uuid7, editable=False)
    subject_kind = models.CharField(
        max_length=40, blank=True, help_text="What it is about, such as an execution, if anything."
    )
    subject_id = models.UUIDField(null=True, blank=True)
    subject_name = models.CharField(
        max_length=250, blank=True, help_text="Its action, or its template."
    )
    attempt = models.PositiveIntegerField(null=True, blank=True)
    original_state = models.CharField(
        max_length=40, blank=True, help_text="State or status of its subject, then."
    )
    dlq_reason = models.CharField(max_length=40, choices=Reason.choices)
    detail = models.TextField(blank=True, help_text="What exactly was wrong.")
    dlq_timestamp = models.DateTimeField(help_text="When it was opened.")
    opened_by = models.CharField(max_length=150, blank=True)
    snapshot = models.JSONField(
        default=dict, blank=True, help_text="Its subject as it was; secrets redacted."
    )

    resolution_status = models.CharField(
        max_length=20, choices=Resolution.choices, default=Resolution.PENDING
    )
    notes = models.JSONField(
        default=list, blank=True, help_text="Objects of at, by, text. Only ever appended to."
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.CharField(max_length=150, blank=True)
    metadata = models.JSONField(default=dict, blank=True, help_text="The investigators' own.")

    original_exchange = models.CharField(max_length=255, blank=True)
    original_queue = models.CharField(max_length=255, blank=True)
    original_routing_key = models.CharField(max_length=255, blank=True)
    x_death = models.JSONField(default=list, blank=True)
    headers = models.JSONField(default=dict, blank=True)
    raw_body = models.BinaryField(
        null=True, blank=True, help_text="Kept when it could not be read."
    )
    fingerprint = models.CharField(  # noqa: DJ001 - NULL is unique
        max_length=80,
        null=True,
        blank=True,
        help_text="Of a letter: makes draining the same one twice harmless.",
    )
    occurrences = models.PositiveIntegerField(
        default=1, help_text="How many identical letters came while it was pending, at least one."
    )
    last_seen_at = models.DateTimeField(
        null=True, blank=True, help_text="When the last of them was drained."
    )

    objects: ClassVar[DLQEntryQuerySet] = DLQEntryQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        id: int

    class Meta:
        verbose_name = "DLQ entry"
        verbose_name_plural = "DLQ entries"
        ordering = ["-id"]
        indexes = [
            models.Index(
                "dlq_reason",
                "dlq_timestamp",
                name="dlq_entry_pending",
                condition=Q(resolution_status="pending"),
            ),
            models.Index(
                "subject_id",
                "id",
                name="dlq_entry_by_subject",
                condition=Q(subject_id__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "fingerprint",
                name="dlq_entry_of_attempt_is_kept_once",
                condition=Q(attempt__isnull=False),
            ),
            models.UniqueConstraint(
                "fingerprint",
                name="dlq_entry_of_letter_is_pending_once",
                condition=Q(attempt__isnull=True, resolution_status="pending"),
            ),
            models.UniqueConstraint(
                "subject_id",
                name="dlq_entry_of_subject_is_pending_once",
                # an execution has one for each of its attempts that died
                condition=Q(resolution_status="pending") & ~Q(subject_kind="execution"),
            ),
            models.UniqueConstraint(
                "subject_id",
                name="dlq_entry_manual_is_pending_once",
                condition=Q(resolution_status="pending", dlq_reason="manual_dlq"),
            ),
            models.CheckConstraint(
                name="dlq_entry_closed_says_when_and_by_whom",
                condition=Q(resolution_status="pending", resolved_at__isnull=True, resolved_by="")
                | Q(~Q(resolution_status="pending"), ~Q(resolved_by=""), resolved_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.dlq_reason} {self.dlq_entry_uuid}"

    @property
    def is_repeatable(self) -> bool:
        """Whether it is of a letter that names no attempt: others may be identical."""
        return self.fingerprint is not None and self.attempt is None

    @property
    def about(self) -> str:
        """Its subject in words, or where the letter without one came from."""
        if self.subject_id is not None:
            return f"{self.subject_kind} {self.subject_id}"
        letters = "a letter" if self.occurrences == 1 else f"{self.occurrences:,} identical letters"
        return f"{letters} from {self.original_queue}" if self.original_queue else letters

    @property
    def is_closed(self) -> bool:
        return self.resolution_status != self.Resolution.PENDING


def _opened(entries: Sequence[DLQEntry], keys: dict[UUID, int]) -> list[DLQEntry]:
    """Those of them that have a key now: it is set."""
    opened = [entry for entry in entries if entry.dlq_entry_uuid in keys]
    for entry in opened:
        entry.pk = keys[entry.dlq_entry_uuid]
    return opened


COUNT_ON_CONFLICT = """
    ON CONFLICT (fingerprint) WHERE attempt IS NULL AND resolution_status = 'pending'
    DO UPDATE SET occurrences = kept.occurrences + EXCLUDED.occurrences,
                  last_seen_at = EXCLUDED.last_seen_at
"""


def _insert_postgresql(
    queryset: DLQEntryQuerySet, entries: Sequence[DLQEntry], on_conflict: str
) -> dict[UUID, int]:
    """One statement with one array a column: a placeholder for each value takes longer to write
    than the rows take to insert, and dead letters come by thousands."""
    meta, connection = queryset.model._meta, connections[queryset.db]
    fields = [field for field in meta.concrete_fields if not field.primary_key]
    kinds = [str(field.db_type(connection)).split("(")[0] for field in fields]
    arrays: list[list[Any]] = []
    for field, kind in zip(fields, kinds, strict=True):
        values: list[Any] = [getattr(entry, str(field.attname)) for entry in entries]
        arrays.append([json.dumps(value) for value in values] if kind == "jsonb" else values)
    quote = connection.ops.quote_name
    names = [quote(str(field.column)) for field in fields]
    columns = ", ".join(names)
    selected = ", ".join(f"{name}::{kind}" for name, kind in zip(names, kinds, strict=True))
    unnested = ", ".join(f"%s::{'text' if kind == 'jsonb' else kind}[]" for kind in kinds)
    sql = f"""
        INSERT INTO {quote(meta.db_table)} AS kept ({columns})
        SELECT {selected} FROM unnest({unnested}) AS entry ({columns})
        {on_conflict} RETURNING dlq_entry_uuid, id
    """  # noqa: S608 - every interpolated name is a column of our own model
    with connection.cursor() as cursor:
        cursor.execute(sql, arrays)
        return dict(cursor.fetchall())
