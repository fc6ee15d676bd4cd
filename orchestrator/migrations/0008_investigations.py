"""DLQ entries become investigations: an id for the outside, a resolution, notes.

What was kept before stays, as entries that nobody has looked into yet.
"""

import secrets
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import migrations, models
from uuid_utils import compat as uuid_utils

BATCH = 1_000

POSTGRESQL = (
    """
    CREATE FUNCTION orchestrator_dlq_entry_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        -- what it is about may be deleted one day; nothing else of it changes
        IF OLD.resolution_status <> 'pending' AND
            to_jsonb(NEW) - 'execution_id' - 'task_id' IS DISTINCT FROM
            to_jsonb(OLD) - 'execution_id' - 'task_id'
        THEN
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

SQLITE = (
    """
    CREATE TRIGGER orchestrator_dlq_entry_is_final BEFORE UPDATE OF
        dlq_entry_uuid, attempt, original_state, dlq_reason, detail, dlq_timestamp, opened_by,
        task_snapshot, resolution_status, notes, resolved_at, resolved_by, metadata, headers,
        original_exchange, original_queue, original_routing_key, x_death, raw_body, fingerprint
    ON orchestrator_dlqentry FOR EACH ROW WHEN OLD.resolution_status <> 'pending'
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


def guard(apps: Any, schema_editor: Any) -> None:
    statements = POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE
    for statement in statements:
        # None, not the default (): a `%` of PL/pgSQL is no placeholder
        schema_editor.execute(statement, params=None)


def unguard(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            "DROP TRIGGER orchestrator_dlq_entry_is_kept ON orchestrator_dlqentry"
        )
        schema_editor.execute("DROP FUNCTION orchestrator_dlq_entry_is_kept()")
    else:
        # a later migration, undone before, may have rebuilt the table without them
        schema_editor.execute("DROP TRIGGER IF EXISTS orchestrator_dlq_entry_is_final")
        schema_editor.execute("DROP TRIGGER IF EXISTS orchestrator_dlq_entry_notes_are_kept")


def adopt(apps: Any, schema_editor: Any) -> None:
    """Give what is there its id, in order of time, and the state that its snapshot tells of."""
    entries = apps.get_model("orchestrator", "DLQEntry").objects
    for batch in _batches(entries):
        for entry in batch:
            entry.dlq_entry_uuid = _uuid7(entry.dlq_timestamp)
            if isinstance(entry.task_snapshot, dict):
                entry.original_state = str(entry.task_snapshot.get("status", ""))[:40]
        entries.bulk_update(batch, ["dlq_entry_uuid", "original_state"])
    # a consumer that rejects a message says that it can do nothing with it
    entries.filter(dlq_reason="message_rejected").update(dlq_reason="message_invalid")


def _batches(entries: Any) -> Iterator[list[Any]]:
    rows = entries.order_by("pk").only("dlq_timestamp", "task_snapshot")
    last = 0
    while batch := list(rows.filter(pk__gt=last)[:BATCH]):
        last = batch[-1].pk
        yield batch


def _uuid7(at: datetime) -> UUID:
    milliseconds = int(at.timestamp() * 1000)
    version, variant = 7 << 76, 0b10 << 62
    random = secrets.randbits(12) << 64 | secrets.randbits(62)
    return UUID(int=milliseconds << 80 | version | variant | random)


def nothing(apps: Any, schema_editor: Any) -> None:
    """The reasons that were there before are still known."""


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0007_worker_availability")]

    operations = [
        migrations.RenameField("dlqentry", "reason", "dlq_reason"),
        migrations.RenameField("dlqentry", "created_at", "dlq_timestamp"),
        migrations.RenameField("dlqentry", "snapshot", "task_snapshot"),
        migrations.AddField(
            "dlqentry", "dlq_entry_uuid", models.UUIDField(null=True, editable=False)
        ),
        migrations.AddField(
            "dlqentry",
            "original_state",
            models.CharField(
                max_length=40,
                blank=True,
                default="",
                help_text="State of the task, or status of the execution, then.",
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            "dlqentry",
            "opened_by",
            models.CharField(max_length=150, blank=True, default="dead_letter_handler"),
            preserve_default=False,
        ),
        migrations.AddField(
            "dlqentry",
            "resolution_status",
            models.CharField(
                max_length=20,
                choices=[
                    ("pending", "Pending"),
                    ("manually_resolved", "Manually Resolved"),
                    ("permanently_failed", "Permanently Failed"),
                    ("cancelled", "Cancelled"),
                ],
                default="pending",
            ),
        ),
        migrations.AddField(
            "dlqentry",
            "notes",
            models.JSONField(
                default=list,
                blank=True,
                help_text="Objects of at, by, text. Only ever appended to.",
            ),
        ),
        migrations.AddField("dlqentry", "resolved_at", models.DateTimeField(null=True, blank=True)),
        migrations.AddField(
            "dlqentry",
            "resolved_by",
            models.CharField(max_length=150, blank=True, default=""),
            preserve_default=False,
        ),
        migrations.AddField(
            "dlqentry",
            "metadata",
            models.JSONField(default=dict, blank=True, help_text="The investigators' own."),
        ),
        migrations.RunPython(adopt, nothing),
        migrations.AlterField(
            "dlqentry",
            "dlq_entry_uuid",
            models.UUIDField(unique=True, default=uuid_utils.uuid7, editable=False),
        ),
        migrations.AlterField(
            "dlqentry",
            "dlq_reason",
            models.CharField(
                max_length=40,
                choices=[
                    ("staleness_timeout", "Staleness Timeout"),
                    ("max_retries_exceeded", "Max Retries Exceeded"),
                    ("dependency_cycle_detected", "Dependency Cycle Detected"),
                    ("worker_unavailable", "Worker Unavailable"),
                    ("manual_dlq", "Manual Dlq"),
                    ("queue_ttl_expired", "Queue Ttl Expired"),
                    ("message_invalid", "Message Invalid"),
                    ("retries_exceeded", "Retries Exceeded"),
                    ("unroutable", "Unroutable"),
                ],
            ),
        ),
        migrations.AlterField(
            "dlqentry",
            "dlq_timestamp",
            models.DateTimeField(help_text="When it was opened."),
        ),
        migrations.AlterField(
            "dlqentry",
            "task_snapshot",
            models.JSONField(
                default=dict,
                blank=True,
                help_text="The task or execution as it was; secrets redacted.",
            ),
        ),
        migrations.AlterField(
            "dlqentry",
            "fingerprint",
            models.CharField(
                max_length=80,
                null=True,
                blank=True,
                unique=True,
                help_text="Of a letter: makes draining the same one twice harmless.",
            ),
        ),
        migrations.AddIndex(
            "dlqentry",
            models.Index(
                "dlq_reason",
                "dlq_timestamp",
                name="dlq_entry_pending",
                condition=models.Q(resolution_status="pending"),
            ),
        ),
        migrations.AddConstraint(
            "dlqentry",
            models.UniqueConstraint(
                "execution",
                name="dlq_entry_manual_is_pending_once",
                condition=models.Q(resolution_status="pending", dlq_reason="manual_dlq"),
            ),
        ),
        migrations.AddConstraint(
            "dlqentry",
            models.CheckConstraint(
                name="dlq_entry_closed_says_when_and_by_whom",
                condition=models.Q(
                    models.Q(resolution_status="pending", resolved_at__isnull=True, resolved_by=""),
                    models.Q(
                        ~models.Q(resolution_status="pending"),
                        ~models.Q(resolved_by=""),
                        resolved_at__isnull=False,
                    ),
                    _connector="OR",
                ),
            ),
        ),
        migrations.RunPython(guard, unguard),
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
    ]
