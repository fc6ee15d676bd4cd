"""The index that finds steps which had no worker, whatever entries their tasks have."""

from django.db import migrations, models
from django.db.models.fields.json import KeyTransform


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0009_staleness_order"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                KeyTransform("reason", "error"),
                condition=models.Q(("state", "error")),
                name="step_error_by_reason",
            ),
        ),
    ]
