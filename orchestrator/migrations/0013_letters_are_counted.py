"""Identical letters that name no attempt share an entry, which counts them."""

from typing import Any

from django.db import migrations, models

# SQLite rebuilds the table for a change of a column, and that drops its triggers
SQLITE = (
    "DROP TRIGGER IF EXISTS orchestrator_dlq_entry_is_final",
    "DROP TRIGGER IF EXISTS orchestrator_dlq_entry_notes_are_kept",
    """
    CREATE TRIGGER orchestrator_dlq_entry_is_final BEFORE UPDATE OF
        dlq_entry_uuid, attempt, original_state, dlq_reason, detail, dlq_timestamp, opened_by,
        task_snapshot, resolution_status, notes, resolved_at, resolved_by, metadata, headers,
        original_exchange, original_queue, original_routing_key, x_death, raw_body, fingerprint
        %s
    ON orchestrator_dlqentry FOR EACH ROW WHEN OLD.resolution_status <> 'pending'
    BEGIN
        SELECT RAISE(ABORT, 'a closed entry is final');
    END
    """,
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
    _guard(schema_editor, ", occurrences, last_seen_at")


def guard_as_before(apps: Any, schema_editor: Any) -> None:
    _guard(schema_editor, "")


def drop_guard(apps: Any, schema_editor: Any) -> None:
    """Before its columns go."""
    if schema_editor.connection.vendor == "sqlite":
        for statement in SQLITE[:2]:
            schema_editor.execute(statement, params=None)


def _guard(schema_editor: Any, more_columns: str) -> None:
    if schema_editor.connection.vendor == "sqlite":
        for statement in SQLITE:
            schema_editor.execute(statement.replace("%s", more_columns), params=None)


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0012_lost_workers")]

    operations = [
        # undone, this comes last: the table is as it was then
        migrations.RunPython(migrations.RunPython.noop, guard_as_before),
        migrations.AddField(
            "dlqentry",
            "occurrences",
            models.PositiveIntegerField(
                default=1,
                help_text="How many identical letters came while it was pending, at least one.",
            ),
        ),
        migrations.AddField(
            "dlqentry",
            "last_seen_at",
            models.DateTimeField(
                null=True, blank=True, help_text="When the last of them was drained."
            ),
        ),
        migrations.AlterField(
            "dlqentry",
            "fingerprint",
            models.CharField(
                max_length=80,
                null=True,
                blank=True,
                help_text="Of a letter: makes draining the same one twice harmless.",
            ),
        ),
        migrations.AddConstraint(
            "dlqentry",
            models.UniqueConstraint(
                "fingerprint",
                name="dlq_entry_of_attempt_is_kept_once",
                condition=models.Q(attempt__isnull=False),
            ),
        ),
        migrations.AddConstraint(
            "dlqentry",
            models.UniqueConstraint(
                "fingerprint",
                name="dlq_entry_of_letter_is_pending_once",
                condition=models.Q(attempt__isnull=True, resolution_status="pending"),
            ),
        ),
        migrations.RunPython(guard, drop_guard),
    ]
