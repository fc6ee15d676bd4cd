"""The evidence for the result of a step that was completed by hand."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0002_task_advance_tries")]

    operations = [
        # nullable: added without reading or rebuilding the table, so its triggers stay
        migrations.AddField(
            model_name="step",
            name="completion_metadata",
            field=models.JSONField(
                blank=True, help_text="The evidence for a result that was given by hand.", null=True
            ),
        ),
    ]
