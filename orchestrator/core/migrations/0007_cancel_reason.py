"""The reason that is given by who cancels an execution."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0006_dlq_entry_updated_at")]

    operations = [
        # neither database reads or rebuilds the table for that, so its triggers stay; Django would
        # rebuild it on SQLite
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE orchestrator_execution "
                    "ADD COLUMN cancel_reason varchar(500) DEFAULT '' NOT NULL",
                    "ALTER TABLE orchestrator_execution DROP COLUMN cancel_reason",
                )
            ],
            state_operations=[
                migrations.AddField(
                    model_name="execution",
                    name="cancel_reason",
                    field=models.CharField(
                        blank=True,
                        default="",
                        help_text="Why it was cancelled, in the words of who did.",
                        max_length=500,
                    ),
                ),
            ],
        )
    ]
