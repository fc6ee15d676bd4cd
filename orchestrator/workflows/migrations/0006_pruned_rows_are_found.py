"""The indexes that find what refers to rows that are pruned."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0008_pruning"),
        ("workflows", "0005_pruning"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("execution"),
                condition=models.Q(("execution__isnull", False)),
                name="step_by_execution",
            ),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("created_by"),
                condition=models.Q(("created_by__isnull", False)),
                name="step_by_creator",
            ),
        ),
    ]
