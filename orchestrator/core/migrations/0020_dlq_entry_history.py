"""The history of DLQ entries: it begins empty, as nothing that follows it looks back."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0019_gate_services")]

    operations = [
        migrations.CreateModel(
            name="DLQEntryEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("manually_resolved", "Manually Resolved"),
                            ("permanently_failed", "Permanently Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "entry",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="history",
                        to="orchestrator.dlqentry",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("entry"),
                        models.F("state"),
                        name="dlq_entry_has_each_state_once",
                    )
                ],
            },
        ),
    ]
