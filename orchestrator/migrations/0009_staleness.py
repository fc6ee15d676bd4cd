"""Tasks have investigations, limits that SQL can read, and a schedule on which they are looked at."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

TASK = "muster.detect_stale_tasks"
DESCRIPTION = "Opens investigations for tasks that are stuck, and moves them to error."


def install(apps: Any, schema_editor: Any) -> None:
    interval, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(
        every=max(1, round(settings.MUSTER.staleness_interval_seconds)), period="seconds"
    )
    apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(
        name=TASK, defaults={"task": TASK, "interval": interval, "description": DESCRIPTION}
    )


def remove(apps: Any, schema_editor: Any) -> None:
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=TASK).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0008_investigations"),
    ]

    operations = [
        migrations.CreateModel(
            name="DLQDashboard",
            fields=[
                ("dlq_reason", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("total_entries", models.BigIntegerField()),
                ("pending", models.BigIntegerField()),
                ("manually_resolved", models.BigIntegerField()),
                ("permanent_failures", models.BigIntegerField()),
                ("cancelled", models.BigIntegerField()),
                ("oldest_entry", models.DateTimeField()),
                ("newest_entry", models.DateTimeField()),
                (
                    "avg_resolution_time_minutes",
                    models.FloatField(help_text="Of those closed.", null=True),
                ),
            ],
            options={
                "db_table": "v_dlq_dashboard",
                "ordering": ["dlq_reason"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="InvestigationQueue",
            fields=[
                ("dlq_entry_uuid", models.UUIDField(primary_key=True, serialize=False)),
                ("entry_id", models.BigIntegerField()),
                ("task_uuid", models.UUIDField(null=True)),
                ("namespace", models.CharField(max_length=29, null=True)),
                ("task_name", models.CharField(max_length=60, null=True)),
                ("dlq_reason", models.CharField(max_length=40)),
                ("original_state", models.CharField(max_length=40)),
                ("detail", models.TextField()),
                ("dlq_timestamp", models.DateTimeField()),
                ("minutes_in_dlq", models.FloatField()),
                ("priority_score", models.FloatField()),
            ],
            options={
                "db_table": "v_dlq_investigation_queue",
                "ordering": ["-priority_score"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="TaskLimit",
            fields=[
                ("key", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("template_id", models.BigIntegerField()),
                ("environment", models.CharField(max_length=60)),
                ("limit_name", models.CharField(max_length=24)),
                ("minutes", models.FloatField()),
                ("opens_entry", models.BooleanField()),
                ("moves_to_error", models.BooleanField()),
            ],
            options={
                "db_table": "v_task_staleness_limits",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="TaskStaleness",
            fields=[
                ("task_uuid", models.UUIDField(primary_key=True, serialize=False)),
                ("namespace", models.CharField(max_length=29)),
                ("task_name", models.CharField(max_length=60)),
                ("template_version", models.CharField(max_length=40)),
                ("environment", models.CharField(max_length=60)),
                ("current_state", models.CharField(max_length=24)),
                ("priority", models.SmallIntegerField()),
                ("correlation_id", models.CharField(max_length=100, null=True)),
                ("time_in_state_minutes", models.FloatField()),
                ("staleness_threshold_minutes", models.FloatField(null=True)),
                ("task_age_minutes", models.FloatField()),
                ("max_duration_minutes", models.FloatField()),
                (
                    "used",
                    models.FloatField(
                        help_text="The larger part of a limit that is used up; 1 is all."
                    ),
                ),
                (
                    "health_status",
                    models.CharField(
                        choices=[
                            ("healthy", "Healthy"),
                            ("warning", "Warning"),
                            ("stale", "Stale"),
                        ],
                        max_length=10,
                    ),
                ),
                ("has_pending_entry", models.BooleanField()),
            ],
            options={
                "db_table": "v_task_staleness_monitoring",
                "ordering": ["-used"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="StalenessDefault",
            fields=[
                ("limit_name", models.CharField(max_length=24, primary_key=True, serialize=False)),
                ("minutes", models.FloatField()),
            ],
        ),
        migrations.RemoveIndex(
            model_name="task",
            name="task_open_by_clock",
        ),
        migrations.AddField(
            model_name="dlqentry",
            name="task",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="dlq_entries",
                to="orchestrator.task",
            ),
        ),
        migrations.AddIndex(
            model_name="dlqentry",
            index=models.Index(
                models.F("task"),
                models.F("id"),
                condition=models.Q(("task__isnull", False)),
                name="dlq_entry_by_task",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("template"),
                models.F("state"),
                models.F("clock_started_at"),
                condition=models.Q(("ended_at__isnull", True)),
                include=("environment", "id"),
                name="task_open_by_clock",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("template"),
                models.F("created_at"),
                condition=models.Q(("ended_at__isnull", True)),
                include=("environment", "id"),
                name="task_open_by_age",
            ),
        ),
        migrations.AddConstraint(
            model_name="dlqentry",
            constraint=models.UniqueConstraint(
                models.F("task"),
                condition=models.Q(("resolution_status", "pending"), ("task__isnull", False)),
                name="dlq_entry_of_task_is_pending_once",
            ),
        ),
        migrations.RunPython(install, remove),
    ]
