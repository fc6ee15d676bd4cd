"""Who cancels an execution says why."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0005_worker_events_are_final")]

    operations = [
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
    ]
