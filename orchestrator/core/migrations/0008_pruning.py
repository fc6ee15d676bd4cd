"""Old rows may be removed, in sessions that say so."""

from django.db import migrations, models

from orchestrator.core import finality


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0007_cancel_reason")]

    operations = [
        migrations.CreateModel(
            name="Pruning",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                )
            ],
        ),
        finality.function_that_lets_go(),
        finality.let_old_rows_go(
            {
                "orchestrator_execution": (
                    "status",
                    ["completed", "failed", "timeout", "cancelled", "abandoned"],
                )
            },
            histories=["orchestrator_executionevent", "orchestrator_workerevent"],
        ),
    ]
