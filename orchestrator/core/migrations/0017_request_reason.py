"""The reason that may be given by who requests an execution, or runs one again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0016_saved_searches")]

    operations = [
        # neither database reads or rebuilds the table for that, so its triggers stay; Django would
        # rebuild it on SQLite
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE orchestrator_execution "
                    "ADD COLUMN request_reason varchar(500) DEFAULT '' NOT NULL",
                    "ALTER TABLE orchestrator_execution DROP COLUMN request_reason",
                )
            ],
            state_operations=[
                migrations.AddField(
                    model_name="execution",
                    name="request_reason",
                    field=models.CharField(
                        blank=True,
                        default="",
                        help_text="Why it was requested, in the words of who did.",
                        max_length=500,
                    ),
                ),
            ],
        )
    ]
