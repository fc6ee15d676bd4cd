"""The number of times that an executor began to advance a task and came to no end of that."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0001_initial")]

    operations = [
        # nullable: added without reading or rebuilding the table, so its triggers stay
        migrations.AddField(
            model_name="task",
            name="advance_tries",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="How often an executor began to advance it and did not come to the end; "
                "beyond the most it is quarantined.",
                null=True,
            ),
        ),
    ]
