"""Idempotency keys belong to their owner, and packs mark what does whatever its caller says."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="action",
            name="dangerous",
            field=models.BooleanField(
                default=False,
                help_text="It does whatever its caller says: requests need "
                "actions.run_any_command, too.",
            ),
        ),
        # nullable, and 0 for earlier rows: neither database reads or rebuilds the table for
        # that, so its triggers stay, and final rows need no update. Django would rebuild it
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE orchestrator_execution ADD COLUMN key_owner bigint DEFAULT 0 NULL",
                    "ALTER TABLE orchestrator_execution DROP COLUMN key_owner",
                )
            ],
            state_operations=[
                migrations.AddField(
                    model_name="execution",
                    name="key_owner",
                    field=models.BigIntegerField(
                        help_text="Whose key it is, as a number of the authorizer; 0 is the "
                        "installation itself.",
                        null=True,
                    ),
                )
            ],
        ),
        migrations.RemoveConstraint(
            model_name="execution", name="execution_idempotency_key_is_unique"
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.UniqueConstraint(
                models.F("key_owner"),
                models.F("idempotency_key"),
                condition=models.Q(("idempotency_key__isnull", False)),
                name="execution_idempotency_key_of_owner_is_unique",
            ),
        ),
    ]
