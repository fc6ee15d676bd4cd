"""Executions, their workers, and investigations of what died."""

import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models

from orchestrator.core import finality

ENTRIES_POSTGRESQL = (
    """
    CREATE FUNCTION orchestrator_dlq_entry_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF OLD.resolution_status <> 'pending' AND NEW IS DISTINCT FROM OLD THEN
            RAISE EXCEPTION 'DLQ entry % is %: a closed entry is final',
                OLD.dlq_entry_uuid, OLD.resolution_status
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        IF OLD.notes <> COALESCE((
            SELECT jsonb_agg(note ORDER BY number)
            FROM jsonb_array_elements(NEW.notes) WITH ORDINALITY AS kept (note, number)
            WHERE number <= jsonb_array_length(OLD.notes)
        ), '[]') THEN
            RAISE EXCEPTION 'DLQ entry %: notes are only appended to', OLD.dlq_entry_uuid
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER orchestrator_dlq_entry_is_kept BEFORE UPDATE ON orchestrator_dlqentry
    FOR EACH ROW EXECUTE FUNCTION orchestrator_dlq_entry_is_kept()
    """,
)
ENTRIES_SQLITE = (
    """
    CREATE TRIGGER orchestrator_dlq_entry_is_final BEFORE UPDATE ON orchestrator_dlqentry
    FOR EACH ROW WHEN OLD.resolution_status <> 'pending'
    BEGIN
        SELECT RAISE(ABORT, 'a closed entry is final');
    END
    """,
    # a list is its text here: what was in it is how the new one begins
    """
    CREATE TRIGGER orchestrator_dlq_entry_notes_are_kept BEFORE UPDATE OF notes
    ON orchestrator_dlqentry FOR EACH ROW
    WHEN substr(OLD.notes, 1, length(OLD.notes) - 1)
        IS NOT substr(NEW.notes, 1, length(OLD.notes) - 1)
    BEGIN
        SELECT RAISE(ABORT, 'notes are only appended to');
    END
    """,
)


def keep_entries(apps, schema_editor):
    """A closed entry is final, and notes are only appended to."""
    is_postgresql = schema_editor.connection.vendor == "postgresql"
    for statement in ENTRIES_POSTGRESQL if is_postgresql else ENTRIES_SQLITE:
        # None, not the default (): a `%` of PL/pgSQL is no placeholder
        schema_editor.execute(statement, params=None)


def let_entries_go(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            "DROP TRIGGER orchestrator_dlq_entry_is_kept ON orchestrator_dlqentry"
        )
        schema_editor.execute("DROP FUNCTION orchestrator_dlq_entry_is_kept()")
    else:
        schema_editor.execute("DROP TRIGGER orchestrator_dlq_entry_is_final")
        schema_editor.execute("DROP TRIGGER orchestrator_dlq_entry_notes_are_kept")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="DLQDashboard",
            fields=[
                ("dlq_reason", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("total_entries", models.BigIntegerField()),
                ("pending", models.BigIntegerField()),
                ("manually_resolved", models.BigIntegerField()),
                ("permanent_failures", models.BigIntegerField()),
                ("cancelled", models.BigIntegerField()),
                ("oldest_entry", models.DateTimeField()),
                ("newest_entry", models.DateTimeField()),
                (
                    "avg_resolution_time_minutes",
                    models.FloatField(help_text="Of those closed.", null=True),
                ),
            ],
            options={
                "db_table": "v_dlq_dashboard",
                "ordering": ["dlq_reason"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="InvestigationQueue",
            fields=[
                ("dlq_entry_uuid", models.UUIDField(primary_key=True, serialize=False)),
                ("entry_id", models.BigIntegerField()),
                ("subject_kind", models.CharField(max_length=40)),
                ("subject_id", models.UUIDField(null=True)),
                ("subject_name", models.CharField(max_length=250)),
                ("dlq_reason", models.CharField(max_length=40)),
                ("original_state", models.CharField(max_length=40)),
                ("detail", models.TextField()),
                ("dlq_timestamp", models.DateTimeField()),
                ("minutes_in_dlq", models.FloatField()),
                ("priority_score", models.FloatField()),
            ],
            options={
                "verbose_name": "investigation",
                "db_table": "v_dlq_investigation_queue",
                "ordering": ["-priority_score"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Pack",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=60, unique=True)),
                ("version", models.CharField(max_length=40)),
                ("description", models.TextField(blank=True)),
                (
                    "path",
                    models.CharField(help_text="The folder it was installed from.", max_length=500),
                ),
                ("installed_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Tick",
            fields=[
                ("name", models.CharField(max_length=60, primary_key=True, serialize=False)),
                ("ran_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="DLQEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "dlq_entry_uuid",
                    models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, unique=True),
                ),
                (
                    "subject_kind",
                    models.CharField(
                        blank=True,
                        help_text="What it is about, such as an execution, if anything.",
                        max_length=40,
                    ),
                ),
                ("subject_id", models.UUIDField(blank=True, null=True)),
                (
                    "subject_name",
                    models.CharField(
                        blank=True, help_text="Its action, or its template.", max_length=250
                    ),
                ),
                ("attempt", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "original_state",
                    models.CharField(
                        blank=True,
                        help_text="State or status of its subject when it was opened.",
                        max_length=40,
                    ),
                ),
                (
                    "dlq_reason",
                    models.CharField(
                        choices=[
                            ("staleness_timeout", "Staleness Timeout"),
                            ("max_retries_exceeded", "Max Retries Exceeded"),
                            ("dependency_cycle_detected", "Dependency Cycle Detected"),
                            ("worker_unavailable", "Worker Unavailable"),
                            ("poison", "Poison"),
                            ("manual_dlq", "Manual Dlq"),
                            ("queue_ttl_expired", "Queue Ttl Expired"),
                            ("message_invalid", "Message Invalid"),
                            ("retries_exceeded", "Retries Exceeded"),
                            ("unroutable", "Unroutable"),
                        ],
                        max_length=40,
                    ),
                ),
                ("detail", models.TextField(blank=True, help_text="What was wrong.")),
                ("dlq_timestamp", models.DateTimeField(help_text="When it was opened.")),
                ("opened_by", models.CharField(blank=True, max_length=150)),
                (
                    "snapshot",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Its subject as it was; secrets redacted.",
                    ),
                ),
                (
                    "resolution_status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("manually_resolved", "Manually Resolved"),
                            ("permanently_failed", "Permanently Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="pending",
                        max_length=20,
                    ),
                ),
                (
                    "notes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Objects of at, by, text; only appended.",
                    ),
                ),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
                ("resolved_by", models.CharField(blank=True, max_length=150)),
                (
                    "metadata",
                    models.JSONField(
                        blank=True, default=dict, help_text="Set by the investigators."
                    ),
                ),
                ("original_exchange", models.CharField(blank=True, max_length=255)),
                ("original_queue", models.CharField(blank=True, max_length=255)),
                ("original_routing_key", models.CharField(blank=True, max_length=255)),
                ("x_death", models.JSONField(blank=True, default=list)),
                ("headers", models.JSONField(blank=True, default=dict)),
                (
                    "raw_body",
                    models.BinaryField(
                        blank=True, help_text="Kept when it could not be read.", null=True
                    ),
                ),
                (
                    "fingerprint",
                    models.CharField(
                        blank=True,
                        help_text="Identifies a letter, so that draining it twice is harmless.",
                        max_length=80,
                        null=True,
                    ),
                ),
                (
                    "occurrences",
                    models.PositiveIntegerField(
                        default=1,
                        help_text="How many identical letters came while it was pending, at least one.",
                    ),
                ),
                (
                    "last_seen_at",
                    models.DateTimeField(
                        blank=True, help_text="When the last of them was drained.", null=True
                    ),
                ),
            ],
            options={
                "verbose_name": "DLQ entry",
                "verbose_name_plural": "DLQ entries",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        models.F("dlq_reason"),
                        models.F("dlq_timestamp"),
                        condition=models.Q(("resolution_status", "pending")),
                        name="dlq_entry_pending",
                    ),
                    models.Index(
                        models.F("subject_id"),
                        models.F("id"),
                        condition=models.Q(("subject_id__isnull", False)),
                        name="dlq_entry_by_subject",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("fingerprint"),
                        condition=models.Q(("attempt__isnull", False)),
                        name="dlq_entry_of_attempt_is_kept_once",
                    ),
                    models.UniqueConstraint(
                        models.F("fingerprint"),
                        condition=models.Q(
                            ("attempt__isnull", True), ("resolution_status", "pending")
                        ),
                        name="dlq_entry_of_letter_is_pending_once",
                    ),
                    models.UniqueConstraint(
                        models.F("subject_id"),
                        condition=models.Q(
                            ("resolution_status", "pending"),
                            models.Q(("subject_kind", "execution"), _negated=True),
                        ),
                        name="dlq_entry_of_subject_is_pending_once",
                    ),
                    models.UniqueConstraint(
                        models.F("subject_id"),
                        condition=models.Q(
                            ("dlq_reason", "manual_dlq"), ("resolution_status", "pending")
                        ),
                        name="dlq_entry_manual_is_pending_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("resolution_status", "pending"),
                                ("resolved_at__isnull", True),
                                ("resolved_by", ""),
                            ),
                            models.Q(
                                models.Q(("resolution_status", "pending"), _negated=True),
                                models.Q(("resolved_by", ""), _negated=True),
                                ("resolved_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="dlq_entry_closed_says_when_and_by_whom",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Action",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("ref", models.CharField(help_text="`pack.name`", max_length=130, unique=True)),
                ("description", models.TextField(blank=True)),
                ("runtime", models.CharField(max_length=60)),
                (
                    "entry_point",
                    models.JSONField(
                        help_text="python: `package.module:function`; http: a URL; others: the list of arguments."
                    ),
                ),
                (
                    "runtime_options",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="See `orchestrator.core.packs.runtimes`.",
                    ),
                ),
                (
                    "limits",
                    models.JSONField(
                        blank=True, default=dict, help_text="What its processes may use at most."
                    ),
                ),
                (
                    "parameters_schema",
                    models.JSONField(blank=True, default=dict, help_text="JSON Schema."),
                ),
                ("timeout_seconds", models.FloatField(blank=True, null=True)),
                (
                    "queue_ttl_ms",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Shorter than the worker queue's TTL, or empty.",
                        null=True,
                    ),
                ),
                (
                    "scheduled_timeout_seconds",
                    models.FloatField(
                        blank=True,
                        help_text="Longest wait from its dispatch to its start, or empty.",
                        null=True,
                    ),
                ),
                (
                    "worker_selector",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Labels that its worker must have, with these values.",
                    ),
                ),
                (
                    "retry_policy",
                    models.JSONField(
                        blank=True, default=dict, help_text="See `orchestrator.core.retry_policy`."
                    ),
                ),
                (
                    "idempotent",
                    models.BooleanField(
                        default=False,
                        help_text="Running it twice does no harm: an unknown outcome may be retried.",
                    ),
                ),
                (
                    "on_no_worker",
                    models.CharField(
                        choices=[("fail", "Fail"), ("wait", "Wait")], default="fail", max_length=4
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("updated_at", models.DateTimeField()),
                (
                    "pack",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="actions",
                        to="orchestrator.pack",
                    ),
                ),
            ],
            options={
                "ordering": ["ref"],
            },
        ),
        migrations.CreateModel(
            name="Tally",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("metric", models.CharField(max_length=100)),
                ("reason", models.CharField(blank=True, max_length=40)),
                ("part", models.CharField(blank=True, max_length=20)),
                ("value", models.FloatField(default=0)),
            ],
            options={
                "verbose_name_plural": "tallies",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("metric"),
                        models.F("reason"),
                        models.F("part"),
                        name="tally_is_one_number",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100, unique=True)),
                ("incarnation", models.PositiveIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("active", "Active"),
                            ("inactive", "Inactive"),
                            ("draining", "Draining"),
                        ],
                        default="inactive",
                        max_length=10,
                    ),
                ),
                ("status_reason", models.CharField(blank=True, max_length=200)),
                (
                    "failed_checks",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Name of each check that fails, and what it found.",
                    ),
                ),
                (
                    "cordoned",
                    models.BooleanField(
                        default=False, help_text="Gets only executions that name this worker."
                    ),
                ),
                ("cordon_reason", models.CharField(blank=True, max_length=200)),
                (
                    "capacity",
                    models.PositiveIntegerField(
                        default=1, help_text="The most actions that it runs at the same time."
                    ),
                ),
                (
                    "runtimes",
                    models.JSONField(default=list, help_text="Kinds of action it offers."),
                ),
                ("labels", models.JSONField(blank=True, default=dict)),
                (
                    "missing_code",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Each pack, or single action of one, whose code its host lacks, and why.",
                    ),
                ),
                ("registered_at", models.DateTimeField(blank=True, null=True)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                (
                    "gone_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Since when its process has left, or was declared lost.",
                        null=True,
                    ),
                ),
                (
                    "retired_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Since when it has no queue and nobody expects it back.",
                        null=True,
                    ),
                ),
                ("host", models.CharField(blank=True, max_length=255)),
                ("pid", models.PositiveIntegerField(blank=True, null=True)),
                ("version", models.CharField(blank=True, max_length=40)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["active", "inactive", "draining"])),
                        name="worker_status_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("status", "inactive"), ("heartbeat_at__isnull", False), _connector="OR"
                        ),
                        name="worker_that_is_up_has_heartbeat",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("status", "inactive"),
                            models.Q(("gone_at__isnull", True), ("retired_at__isnull", True)),
                            _connector="OR",
                        ),
                        name="worker_that_is_gone_is_inactive",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Execution",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid_utils.compat.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("action_ref", models.CharField(max_length=130)),
                ("parameters", models.JSONField(default=dict)),
                (
                    "priority",
                    models.SmallIntegerField(default=0, help_text="Higher is scheduled first."),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("requested", "requested"),
                            ("scheduling", "scheduling"),
                            ("scheduled", "scheduled"),
                            ("running", "running"),
                            ("canceling", "canceling"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("timeout", "timeout"),
                            ("cancelled", "cancelled"),
                            ("abandoned", "abandoned"),
                        ],
                        default="requested",
                        max_length=10,
                    ),
                ),
                (
                    "attempt",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="The fence: grows with each dispatch, and nothing resets it.",
                    ),
                ),
                ("retry_count", models.PositiveIntegerField(default=0)),
                (
                    "lost_workers",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="Attempts that ended with the loss of their worker."
                    ),
                ),
                ("worker_incarnation", models.PositiveIntegerField(null=True)),
                ("timeout_seconds", models.FloatField(help_text="How long the action may run.")),
                ("queue_ttl_ms", models.PositiveIntegerField(null=True)),
                ("scheduled_timeout_seconds", models.FloatField(null=True)),
                (
                    "worker_selector",
                    models.JSONField(
                        help_text="Labels that its worker must have; empty for what its action asks.",
                        null=True,
                    ),
                ),
                (
                    "retry_policy",
                    models.JSONField(
                        help_text="See `orchestrator.core.retry_policy`; empty for that of its action.",
                        null=True,
                    ),
                ),
                ("wait_reason", models.CharField(blank=True, max_length=200)),
                (
                    "start_by",
                    models.DateTimeField(help_text="A claim after this is refused.", null=True),
                ),
                ("run_deadline_at", models.DateTimeField(null=True)),
                (
                    "next_retry_at",
                    models.DateTimeField(help_text="Not scheduled before this.", null=True),
                ),
                ("deadline_at", models.DateTimeField(help_text="It ends at the latest then.")),
                ("reason", models.CharField(blank=True, max_length=40)),
                ("result", models.JSONField(null=True)),
                ("requested_by", models.CharField(blank=True, max_length=150)),
                ("correlation_id", models.CharField(max_length=100, null=True)),
                ("idempotency_key", models.CharField(max_length=200, null=True)),
                ("created_at", models.DateTimeField()),
                ("scheduled_at", models.DateTimeField(null=True)),
                (
                    "dispatched_again_at",
                    models.DateTimeField(
                        help_text="When its dispatch, which nobody had claimed, was last sent again.",
                        null=True,
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("cancel_requested_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "action",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="orchestrator.action",
                    ),
                ),
                (
                    "pinned_worker",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="orchestrator.worker",
                    ),
                ),
                (
                    "worker",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="orchestrator.worker",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="WorkerEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("registered", "Registered"),
                            ("left", "Left"),
                            ("lost", "Lost"),
                            ("unhealthy", "Unhealthy"),
                            ("healthy", "Healthy"),
                            ("lacks_code", "Lacks Code"),
                            ("has_code", "Has Code"),
                            ("cordoned", "Cordoned"),
                            ("uncordoned", "Uncordoned"),
                            ("draining", "Draining"),
                            ("retired", "Retired"),
                        ],
                        max_length=12,
                    ),
                ),
                ("incarnation", models.PositiveIntegerField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("at", models.DateTimeField()),
                (
                    "worker",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="orchestrator.worker",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="ExecutionEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("event", models.CharField(max_length=20)),
                ("from_status", models.CharField(max_length=10)),
                ("to_status", models.CharField(max_length=10)),
                ("attempt", models.PositiveIntegerField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.CharField(blank=True, max_length=40)),
                ("at", models.DateTimeField()),
                (
                    "execution",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="history",
                        to="orchestrator.execution",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("execution"),
                        condition=models.Q(
                            (
                                "to_status__in",
                                ["abandoned", "cancelled", "completed", "failed", "timeout"],
                            )
                        ),
                        name="execution_ends_once",
                    )
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="action",
            constraint=models.CheckConstraint(
                condition=models.Q(("ref__regex", "^[a-z0-9_-]+\\.[a-z0-9_.-]+$")),
                name="action_ref_is_pack_dot_name",
            ),
        ),
        migrations.AddConstraint(
            model_name="action",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("timeout_seconds__isnull", True), ("timeout_seconds__gt", 0), _connector="OR"
                ),
                name="action_timeout_is_positive",
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                models.OrderBy(models.F("priority"), descending=True),
                models.F("id"),
                condition=models.Q(("ended_at__isnull", True)),
                name="execution_open",
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                models.F("id"),
                condition=models.Q(("ended_at__isnull", True), ("lost_workers__gte", 2)),
                name="execution_suspect",
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(models.F("action_ref"), models.F("id"), name="execution_by_action"),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                models.F("correlation_id"),
                condition=models.Q(("correlation_id__isnull", False)),
                name="execution_by_correlation",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.UniqueConstraint(
                models.F("idempotency_key"),
                condition=models.Q(("idempotency_key__isnull", False)),
                name="execution_idempotency_key_is_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "status__in",
                        [
                            "requested",
                            "scheduling",
                            "scheduled",
                            "running",
                            "canceling",
                            "completed",
                            "failed",
                            "timeout",
                            "cancelled",
                            "abandoned",
                        ],
                    )
                ),
                name="execution_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", False),
                        (
                            "status__in",
                            ["abandoned", "cancelled", "completed", "failed", "timeout"],
                        ),
                    ),
                    models.Q(
                        ("ended_at__isnull", True),
                        (
                            "status__in",
                            ["canceling", "requested", "running", "scheduled", "scheduling"],
                        ),
                    ),
                    _connector="OR",
                ),
                name="execution_is_ended_if_and_only_if_terminal",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ended_at__isnull", True),
                    models.Q(("reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="execution_that_ended_has_reason",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "scheduled"), _negated=True),
                    models.Q(
                        ("attempt__gte", 1), ("start_by__isnull", False), ("worker__isnull", False)
                    ),
                    _connector="OR",
                ),
                name="execution_dispatched_has_worker_and_due_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status__in", ["running", "canceling"]), _negated=True),
                    models.Q(
                        ("run_deadline_at__isnull", False),
                        ("started_at__isnull", False),
                        ("worker__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="execution_started_has_due_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(("deadline_at__gt", models.F("created_at"))),
                name="execution_deadline_is_after_creation",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=models.Q(("timeout_seconds__gt", 0)), name="execution_timeout_is_positive"
            ),
        ),
        finality.function(),
        finality.keep(
            {
                "orchestrator_execution": (
                    "status",
                    ["completed", "failed", "timeout", "cancelled", "abandoned"],
                )
            },
            histories=["orchestrator_executionevent"],
        ),
        migrations.RunPython(keep_entries, let_entries_go),
        finality.tune(
            {
                # rows move through four updates in their life: half a page free lets them stay
                "orchestrator_execution": "fillfactor = 50, autovacuum_analyze_scale_factor = 0.02",
                # it grows by thousands in a second: the default, a fifth of it, is far too late
                "orchestrator_executionevent": "autovacuum_analyze_scale_factor = 0.02",
            }
        ),
    ]
