"""The mark up to which the history of executions has been counted: from its present end on."""

from typing import Any

from django.db import migrations, models
from django.db.models import Max


def mark_the_end(apps: Any, schema_editor: Any) -> None:
    """Begin with what is written from now on: a history may be long, and rates need no past."""
    events = apps.get_model("orchestrator", "ExecutionEvent").objects
    last = events.aggregate(last=Max("pk"))["last"] or 0
    apps.get_model("orchestrator", "HistoryMark").objects.create(counted_to=last, seen_to=last)


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0008_pruning")]

    operations = [
        migrations.CreateModel(
            name="HistoryMark",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "counted_to",
                    models.BigIntegerField(help_text="Events up to this id are counted."),
                ),
                (
                    "counted_until",
                    models.DateTimeField(
                        help_text="What was written before this is counted.", null=True
                    ),
                ),
                (
                    "seen_to",
                    models.BigIntegerField(help_text="The last id when somebody last looked."),
                ),
                (
                    "seen_before",
                    models.BigIntegerField(
                        default=0,
                        help_text="Its events are of transactions with smaller numbers.",
                    ),
                ),
                ("seen_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.RunPython(mark_the_end, migrations.RunPython.noop),
    ]
