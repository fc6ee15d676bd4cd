"""The time at which an investigator last changed an entry."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0005_worker_events_are_final")]

    operations = [
        # nullable: added without reading or rebuilding the table, so its triggers stay
        migrations.AddField(
            model_name="dlqentry",
            name="updated_at",
            field=models.DateTimeField(
                blank=True, help_text="When an investigator last changed it.", null=True
            ),
        ),
    ]
