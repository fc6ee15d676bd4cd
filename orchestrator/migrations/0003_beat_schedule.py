"""What beat runs, as rows that the admin shows and an operator may change."""

from typing import Any

from django.conf import settings
from django.db import migrations

TASKS = {
    "muster.check_timeouts": "Ends what is overdue and schedules what was never picked up.",
    "muster.check_heartbeats": "Declares silent workers lost and settles what they held.",
    "muster.drain_dead_letters": "Turns dead letters into failed executions and DLQ entries.",
}


def install(apps: Any, schema_editor: Any) -> None:
    interval, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(
        every=max(1, round(settings.MUSTER.maintenance_interval_seconds)), period="seconds"
    )
    for task, description in TASKS.items():
        apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(
            name=task,
            defaults={
                "task": task,
                "interval": interval,
                "description": description,
            },
        )


def remove(apps: Any, schema_editor: Any) -> None:
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name__in=TASKS).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0002_terminal_is_final"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(install, remove)]
