"""Errands, their kinds, and their history."""

import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models

from orchestrator.core import finality


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("orchestrator", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Errand",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid_utils.compat.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("state", models.CharField(default="asked", max_length=10)),
                ("fence", models.PositiveIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "execution",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="orchestrator.execution",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="ErrandEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("event", models.CharField(max_length=20)),
                ("from_state", models.CharField(max_length=10)),
                ("to_state", models.CharField(max_length=10)),
                ("fence", models.PositiveIntegerField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("at", models.DateTimeField()),
                (
                    "errand",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="history",
                        to="errands.errand",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ErrandKind",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=60, unique=True)),
                ("action_ref", models.CharField(max_length=130)),
                (
                    "pack",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="orchestrator.pack",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="errand",
            name="kind",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="errands.errandkind",
            ),
        ),
        finality.keep(
            {"errands_errand": ("state", ["done", "dropped"])}, histories=["errands_errandevent"]
        ),
    ]
