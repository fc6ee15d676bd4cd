"""DLQ entries: messages and work that died or got stuck, the reason, the subject, the investigator.

An entry is an investigation. It never changes its subject, and keeps a snapshot of it: the subject
may belong to any app, or be gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.db import connections, models
from django.db.models import Avg, Case, Count, F, Max, Min, Q, Value, When
from django.db.models.functions import Left, StrIndex, TruncHour
from uuid_utils import compat as uuid_utils

from orchestrator.core import authority, frame, words
from orchestrator.core.authority import WHOLE, Place, Principal

REASON_KINDS = words.kinds(
    info="manual_dlq",
    warning="staleness_timeout worker_unavailable queue_ttl_expired",
    danger="max_retries_exceeded dependency_cycle_detected sensor_failing rule_failing poison "
    "message_invalid retries_exceeded unroutable",
)
RESOLUTION_KINDS = words.kinds(
    success="manually_resolved", warning="pending", danger="permanently_failed"
)

FAILED_BY = "dead_letter_handler"
"""The drain of dead letters, as histories and results name it."""

OF_LETTERS = ("queue_ttl_expired", "message_invalid", "retries_exceeded", "unroutable")
"""Reasons of messages that died, or that no queue was there for."""

IN_OUR_WORDS = ("manual_dlq", "staleness_timeout", "dependency_cycle_detected")
"""Reasons whose detail quotes no message and no error of an action."""


class Grouping(StrEnum):
    """The property that entries are counted by, in addition to their reason."""

    SUBJECT = "subject"
    NAMESPACE = "namespace"
    QUEUE = "queue"
    HOUR = "hour"


COUNTED_BY = {
    Grouping.SUBJECT: ("subject_kind", "subject_name"),
    Grouping.NAMESPACE: ("namespace_name",),
    Grouping.QUEUE: ("original_queue",),
    Grouping.HOUR: ("hour",),
}
"""The columns in which the entries of a group are equal."""


def quotes_payload(kind: str, reason: str) -> bool:
    """Return True if the detail of such an entry may quote what an action or a message said."""
    return kind != "execution" and reason not in IN_OUR_WORDS


def place_of_subject(kind: str, name: str) -> Place:
    """The place that an entry's subject belongs to; a letter without a subject belongs to
    nothing."""
    about = {each.name: each.about for each in frame.collect(lambda app: app.subject_kinds)}
    return Place.of_ref(about[kind], name) if about.get(kind) else WHOLE


def _kinds_in_namespaces() -> list[str]:
    """The kinds of subjects whose names begin with a namespace."""
    kinds = frame.collect(lambda app: app.subject_kinds)
    return [each.name for each in kinds if each.about == frame.NAMESPACES]


def is_about_visible(principal: Principal, permission: str) -> Q:
    """The condition for entries whose subject's pack or namespace the caller has a permission
    for."""
    reach = authority.reach(principal, permission)
    if reach.is_everywhere:
        return Q()
    wanted = authority.NOTHING
    for kind in frame.collect(lambda app: app.subject_kinds):
        if kind.about:
            within = reach.condition(kind.about, "subject_name", is_ref=True)
            wanted |= Q(within, subject_kind=kind.name)
    return wanted


def may_scan(
    *, is_of_subject: bool, resolution_status: str | None, others: Iterable[object]
) -> bool:
    """True if no index leads to the few entries with this resolution, and with `others`, the values
    of other filters: a list then looks at `cursors.LOOKED_AT_LIMIT` of them at a time, see ADR 50.
    Those of one subject have an index, and pending ones."""
    if is_of_subject or resolution_status == DLQEntry.Resolution.PENDING:
        return False
    return resolution_status is not None or any(value is not None for value in others)


class DLQEntryQuerySet(models.QuerySet["DLQEntry"]):
    def visible_to(self, principal: Principal, permission: str = "dlq.read") -> DLQEntryQuerySet:
        """Is about something for which the caller has a permission."""
        return self.filter(is_about_visible(principal, permission))

    def counted_by_reason(self) -> list[dict[str, Any]]:
        """The columns of the view `v_dlq_dashboard`, of these rows only."""
        return _in_minutes(self._counted("dlq_reason").order_by("dlq_reason"))

    def counted_by(self, grouping: Grouping, *, limit: int) -> list[dict[str, Any]]:
        """The same of each reason and group, and the group's own columns. Those with most pending
        entries come first, then those with most entries, at most `limit`."""
        columns = ("dlq_reason", *COUNTED_BY[grouping])
        rows = self._computed()._counted(*columns)
        return _in_minutes(rows.order_by("-pending", "-total_entries", *columns)[:limit])

    def _computed(self) -> DLQEntryQuerySet:
        """Add the columns that only `counted_by` has: the namespace of the subject, which is empty
        if it has none, and the hour in which it was opened, of UTC."""
        # the name begins with the namespace and a slash
        before_slash = Left("subject_name", StrIndex("subject_name", Value("/")) - 1)
        in_namespace = Case(
            When(subject_kind__in=_kinds_in_namespaces(), then=before_slash), default=Value("")
        )
        return self.annotate(
            namespace_name=in_namespace, hour=TruncHour("dlq_timestamp", tzinfo=UTC)
        )

    def _counted(self, *columns: str) -> models.QuerySet[Any, dict[str, Any]]:
        """The counts and times of those that are equal in these columns."""
        resolutions = {
            "pending": DLQEntry.Resolution.PENDING,
            "manually_resolved": DLQEntry.Resolution.MANUALLY_RESOLVED,
            "permanent_failures": DLQEntry.Resolution.PERMANENTLY_FAILED,
            "cancelled": DLQEntry.Resolution.CANCELLED,
        }
        return self.values(*columns).annotate(
            total_entries=Count("pk"),
            oldest_entry=Min("dlq_timestamp"),
            newest_entry=Max("dlq_timestamp"),
            took=Avg(F("resolved_at") - F("dlq_timestamp")),
            **{
                name: Count("pk", filter=Q(resolution_status=resolution))
                for name, resolution in resolutions.items()
            },
        )

    def insert(self, entries: Sequence[DLQEntry]) -> list[DLQEntry]:
        """Insert in bulk; returns those that did not exist yet, with their keys.

        An entry exists if its letter was kept before, or if its subject has a pending entry and may
        have only one.
        """
        if connections[self.db].vendor == "postgresql":
            keys = _insert_postgresql(self, entries, "ON CONFLICT DO NOTHING")
        else:
            keys = self._insert_portably(entries)
        return _opened(entries, keys)

    def insert_or_count(self, entries: Sequence[DLQEntry]) -> list[DLQEntry]:
        """Insert entries of letters that name no attempt, each fingerprint once; returns those that
        did not exist yet. If one is pending, its occurrences grow instead."""
        # in one order: otherwise two drains could deadlock
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
        # the database does not say which were ignored, but each has an id of its own
        ids = [entry.dlq_entry_uuid for entry in entries]
        mine = self.filter(dlq_entry_uuid__in=ids).order_by()
        return dict(mine.values_list("dlq_entry_uuid", "pk"))

    def about(self, subject_id: UUID) -> DLQEntryQuerySet:
        """Entries about one subject."""
        return self.filter(subject_id=subject_id)

    def opened(self, after: datetime | None, before: datetime | None) -> DLQEntryQuerySet:
        """Opened at or after a time, and before another."""
        rows = self if after is None else self.filter(dlq_timestamp__gte=after)
        return rows if before is None else rows.filter(dlq_timestamp__lt=before)

    def of_template(self, namespace: str | None, name: str | None) -> DLQEntryQuerySet:
        """About something of a namespace, of a template with this name, or of both."""
        if namespace is None and name is None:
            return self
        rows = self.filter(subject_kind__in=_kinds_in_namespaces())
        # a subject is called namespace/name/version, and none of these has a slash
        if namespace is None:
            return rows.filter(subject_name__contains=f"/{name}/")
        return rows.filter(
            subject_name__startswith=f"{namespace}/{name}/" if name else f"{namespace}/"
        )

    def pending(self) -> DLQEntryQuerySet:
        """Entries that are not closed yet."""
        return self.filter(resolution_status=DLQEntry.Resolution.PENDING)

    def letters(self) -> DLQEntryQuerySet:
        """Of a message: one that an execution was to start by, or one that nobody knows."""
        return self.filter(dlq_reason__in=OF_LETTERS, subject_kind__in=("", "execution"))

    def unheard_of(self, since: datetime) -> DLQEntryQuerySet:
        """Opened before this, without an identical letter or an investigator's change after it."""
        old = self.filter(dlq_timestamp__lt=since)
        return old.exclude(last_seen_at__gte=since).exclude(updated_at__gte=since)

    def without_contents(self) -> DLQEntryQuerySet:
        """Leave out the columns that can be large, which no listing shows."""
        return self.defer("headers", "x_death", "snapshot", "raw_body", "metadata")


class DLQEntry(models.Model):
    """One investigation: of an execution whose message died, of garbage, of anything that is
    stuck."""

    class Reason(models.TextChoices):
        STALENESS_TIMEOUT = "staleness_timeout"
        MAX_RETRIES_EXCEEDED = "max_retries_exceeded"
        DEPENDENCY_CYCLE_DETECTED = "dependency_cycle_detected"
        SENSOR_FAILING = "sensor_failing"
        RULE_FAILING = "rule_failing"
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
        max_length=40, blank=True, help_text="State or status of its subject when it was opened."
    )
    dlq_reason = models.CharField(max_length=40, choices=Reason.choices)
    detail = models.TextField(blank=True, help_text="What was wrong.")
    dlq_timestamp = models.DateTimeField(help_text="When it was opened.")
    opened_by = models.CharField(max_length=150, blank=True)
    snapshot = models.JSONField(
        default=dict, blank=True, help_text="Its subject as it was; secrets redacted."
    )

    resolution_status = models.CharField(
        max_length=20, choices=Resolution.choices, default=Resolution.PENDING
    )
    notes = models.JSONField(
        default=list, blank=True, help_text="Objects of at, by, text; only appended."
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.CharField(max_length=150, blank=True)
    metadata = models.JSONField(default=dict, blank=True, help_text="Set by the investigators.")
    updated_at = models.DateTimeField(
        null=True, blank=True, help_text="When an investigator last changed it."
    )

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
        help_text="Identifies a letter, so that draining it twice is harmless.",
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
    def place(self) -> Place:
        """The place that its subject belongs to, for scopes."""
        return place_of_subject(self.subject_kind, self.subject_name)

    @property
    def is_repeatable(self) -> bool:
        """True for a letter that names no attempt: others may be identical."""
        return self.fingerprint is not None and self.attempt is None

    @property
    def about(self) -> str:
        """Its subject in words; for a letter without a subject, its origin."""
        return about(self)

    @property
    def resolution_notes(self) -> str:
        """The texts of all notes, one after another."""
        return "\n".join(note["text"] for note in self.notes if note.get("text"))

    @property
    def is_closed(self) -> bool:
        return self.resolution_status != self.Resolution.PENDING


def about(entry: Any) -> str:
    """The subject of an entry, or of a row of a view of entries, in words; for a letter without a
    subject, its origin."""
    if entry.subject_id is not None:
        return f"{entry.subject_kind} {entry.subject_id}"
    letters = "a letter" if entry.occurrences == 1 else f"{entry.occurrences:,} identical letters"
    return f"{letters} from {entry.original_queue}" if entry.original_queue else letters


def _in_minutes(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """These counts, with the mean time to close as a number in place of an interval."""
    return [
        row | {"avg_resolution_time_minutes": took and took.total_seconds() / 60}
        for row in rows
        for took in [row.pop("took")]
    ]


def _opened(entries: Sequence[DLQEntry], keys: dict[UUID, int]) -> list[DLQEntry]:
    """Those of them that were inserted, with their primary keys set."""
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
    """Insert with one parameter for each column: a placeholder for each value takes longer to build
    than the rows take to insert, and dead letters come by the thousand. Documents are one JSON
    array: the driver would escape each of their quotes in Python."""
    meta, connection = queryset.model._meta, connections[queryset.db]
    fields = [field for field in meta.concrete_fields if not field.primary_key]
    kinds = [str(field.db_type(connection)).split("(")[0] for field in fields]
    columns_of_values: list[Any] = []
    for field, kind in zip(fields, kinds, strict=True):
        values = [getattr(entry, str(field.attname)) for entry in entries]
        columns_of_values.append(json.dumps(values) if kind == "jsonb" else values)
    quote = connection.ops.quote_name
    names = [quote(str(field.column)) for field in fields]
    columns = ", ".join(names)
    selected = ", ".join(f"{name}::{kind}" for name, kind in zip(names, kinds, strict=True))
    in_rows = ", ".join(
        "json_array_elements(%s::json)" if kind == "jsonb" else f"unnest(%s::{kind}[])"
        for kind in kinds
    )
    sql = f"""
        INSERT INTO {quote(meta.db_table)} AS kept ({columns})
        SELECT {selected} FROM ROWS FROM ({in_rows}) AS entry ({columns})
        {on_conflict} RETURNING dlq_entry_uuid, id
    """  # noqa: S608 - every interpolated name is a column of our own model
    with connection.cursor() as cursor:
        cursor.execute(sql, columns_of_values)
        return dict(cursor.fetchall())
