"""The queue of an execution, and the queues that a worker serves."""

from django.db import migrations, models
from django.db.models import F, Q

EXECUTION_TABLE = "orchestrator_execution"

LANE_IF_QUEUED = "execution_has_lane_if_and_only_if_queued"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0010_trace_context")]

    operations = [
        migrations.RemoveIndex(model_name="execution", name="execution_open"),
        # Django would rebuild the table on SQLite for the constraint, and the triggers that keep
        # ended executions final would be gone; this adds the columns in place on both databases
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    f"ALTER TABLE {EXECUTION_TABLE} ADD COLUMN queue varchar(100) NULL",
                    f"ALTER TABLE {EXECUTION_TABLE} DROP COLUMN queue",
                ),
                migrations.RunSQL(
                    f"ALTER TABLE {EXECUTION_TABLE} ADD COLUMN lane varchar(5) NULL "
                    f"CONSTRAINT {LANE_IF_QUEUED} CHECK ((queue IS NULL AND lane IS NULL) "
                    "OR (queue IS NOT NULL AND lane IS NOT NULL AND lane IN ('input', 'retry')))",
                    f"ALTER TABLE {EXECUTION_TABLE} DROP COLUMN lane",
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name="execution",
                    name="queue",
                    field=models.CharField(
                        help_text="Its queue; empty for the default one.", max_length=100, null=True
                    ),
                ),
                migrations.AddField(
                    model_name="execution",
                    name="lane",
                    field=models.CharField(
                        choices=[("input", "input"), ("retry", "retry")],
                        help_text="The lane of its queue; empty outside of queues.",
                        max_length=5,
                        null=True,
                    ),
                ),
                migrations.AddConstraint(
                    model_name="execution",
                    constraint=models.CheckConstraint(
                        condition=Q(lane__isnull=True, queue__isnull=True)
                        | Q(lane__in=["input", "retry"], lane__isnull=False, queue__isnull=False),
                        name=LANE_IF_QUEUED,
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                F("queue"),
                F("priority").desc(),
                F("id"),
                condition=Q(ended_at__isnull=True),
                name="execution_open",
            ),
        ),
        migrations.AddField(
            model_name="action",
            name="queue",
            field=models.CharField(
                blank=True,
                default="",
                help_text="The queue of requests that name none; empty for the default one.",
                max_length=100,
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="queues",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="Queues that it serves, and the most slots for each; empty for the "
                "default one.",
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="queue_pauses",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="Queues that it takes nothing of, and until when.",
            ),
        ),
    ]
