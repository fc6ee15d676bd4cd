"""An order knows which rows were named: another order with its key names others."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("bulk", "0001_initial")]

    operations = [
        # Django would rebuild the table on SQLite, and its triggers would be gone
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE bulk_bulkorder "
                    "ADD COLUMN ids_digest varchar(64) DEFAULT '' NOT NULL",
                    "ALTER TABLE bulk_bulkorder DROP COLUMN ids_digest",
                )
            ],
            state_operations=[
                migrations.AddField(
                    model_name="bulkorder",
                    name="ids_digest",
                    field=models.CharField(
                        blank=True,
                        help_text="SHA-256 of the rows that were named, if any were.",
                        max_length=64,
                    ),
                ),
            ],
        )
    ]
