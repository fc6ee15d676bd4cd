"""Numbers over time and causes: from the present end of the history on."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Max


def mark_the_end(apps: Any, schema_editor: Any) -> None:
    """Begin with what is written from now on: a history may be long."""
    events = apps.get_model("orchestrator", "ExecutionEvent").objects
    last = events.aggregate(last=Max("pk"))["last"] or 0
    marks = apps.get_model("rollups", "Mark").objects
    for name in ("minutes", "causes"):
        marks.create(name=name, read_to=last, seen_to=last)


class Migration(migrations.Migration):
    initial = True

    dependencies = [("orchestrator", "0015_services")]

    operations = [
        migrations.CreateModel(
            name="Mark",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("read_to", models.BigIntegerField(help_text="Events up to this id are read.")),
                (
                    "read_until",
                    models.DateTimeField(
                        help_text="What was written before this is read.", null=True
                    ),
                ),
                (
                    "seen_to",
                    models.BigIntegerField(help_text="The last id when somebody last looked."),
                ),
                (
                    "seen_before",
                    models.BigIntegerField(
                        default=0, help_text="Its events are of transactions with smaller numbers."
                    ),
                ),
                ("seen_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Arrivals",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("minutes", models.SmallIntegerField(help_text="The length of the span.")),
                ("start", models.DateTimeField()),
                ("action_ref", models.CharField(max_length=130)),
                ("to_status", models.CharField(max_length=10)),
                ("count", models.PositiveBigIntegerField()),
                ("reason", models.CharField(blank=True, max_length=40)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("minutes"),
                        models.F("start"),
                        models.F("action_ref"),
                        models.F("to_status"),
                        models.F("reason"),
                        name="arrivals_are_one_sum",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Durations",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("minutes", models.SmallIntegerField(help_text="The length of the span.")),
                ("start", models.DateTimeField()),
                ("action_ref", models.CharField(max_length=130)),
                ("to_status", models.CharField(max_length=10)),
                ("count", models.PositiveBigIntegerField()),
                ("bucket", models.SmallIntegerField(help_text="Its number, see `minutes.BOUNDS`.")),
                ("seconds", models.FloatField(help_text="Their sum.")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("minutes"),
                        models.F("start"),
                        models.F("action_ref"),
                        models.F("to_status"),
                        models.F("bucket"),
                        name="durations_are_one_sum",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="FailureGroup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("action_ref", models.CharField(max_length=130)),
                ("reason", models.CharField(max_length=40)),
                ("sample", models.CharField(blank=True, max_length=300)),
                ("first", models.DateTimeField()),
                ("last", models.DateTimeField()),
                ("count", models.PositiveBigIntegerField(help_text="Since the first one.")),
            ],
            options={
                "indexes": [
                    models.Index(models.F("last"), name="failure_group_by_last"),
                    models.Index(
                        models.F("action_ref"), models.F("reason"), name="failure_group_by_action"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="FailureCount",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.DateTimeField()),
                ("count", models.PositiveBigIntegerField()),
                (
                    "group",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="counts",
                        to="rollups.failuregroup",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        models.F("group"), models.F("start"), name="failure_count_by_group"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("start"), models.F("group"), name="failure_count_is_one_sum"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Failure",
            fields=[
                ("execution_id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "worker_id",
                    models.BigIntegerField(help_text="The worker of its last attempt.", null=True),
                ),
                ("at", models.DateTimeField()),
                (
                    "group",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="failures",
                        to="rollups.failuregroup",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        models.F("group"), models.F("execution_id"), name="failure_of_group"
                    ),
                    models.Index(models.F("at"), name="failure_by_time"),
                ],
            },
        ),
        migrations.RunPython(mark_the_end, migrations.RunPython.noop),
    ]
