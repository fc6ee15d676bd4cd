"""Steps that ask people, and who requested a task, as a number of the authorizer."""

from django.db import migrations, models

from orchestrator.core import finality

ENDED = {"workflows_step": ("state", ["complete", "cancelled", "resolved_manually"])}


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0011_queues"),
        ("workflows", "0006_pruned_rows_are_found"),
    ]

    operations = [
        # a changed constraint rebuilds the table on SQLite, and its triggers are gone: this one is
        # for the way back
        finality.keep_again(ENDED),
        migrations.RemoveConstraint(
            model_name="step",
            name="step_state_is_known",
        ),
        migrations.RemoveConstraint(
            model_name="step",
            name="step_is_ended_if_and_only_if_its_state_is",
        ),
        migrations.RemoveIndex(
            model_name="step",
            name="step_in_flight",
        ),
        migrations.AddField(
            model_name="task",
            name="requester_number",
            field=models.BigIntegerField(
                blank=True, help_text="Who requested it, as a number of the authorizer.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="step",
            name="kind",
            field=models.CharField(
                choices=[
                    ("standard", "Standard"),
                    ("decision", "Decision"),
                    ("deferred", "Deferred"),
                    ("inquiry", "Inquiry"),
                    ("batchable", "Batchable"),
                    ("batch_worker", "Batch Worker"),
                ],
                default="standard",
                max_length=12,
            ),
        ),
        migrations.AlterField(
            model_name="step",
            name="state",
            field=models.CharField(
                choices=[
                    ("pending", "pending"),
                    ("enqueued", "enqueued"),
                    ("in_progress", "in_progress"),
                    ("waiting_for_inquiry", "waiting_for_inquiry"),
                    ("enqueued_for_orchestration", "enqueued_for_orchestration"),
                    ("complete", "complete"),
                    ("error", "error"),
                    ("waiting_for_retry", "waiting_for_retry"),
                    ("cancelled", "cancelled"),
                    ("resolved_manually", "resolved_manually"),
                ],
                default="pending",
                max_length=26,
            ),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("id"),
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "enqueued",
                            "enqueued_for_orchestration",
                            "in_progress",
                            "waiting_for_inquiry",
                        ],
                    )
                ),
                name="step_in_flight",
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "pending",
                            "enqueued",
                            "in_progress",
                            "waiting_for_inquiry",
                            "enqueued_for_orchestration",
                            "complete",
                            "error",
                            "waiting_for_retry",
                            "cancelled",
                            "resolved_manually",
                        ],
                    )
                ),
                name="step_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", False),
                        (
                            "state__in",
                            [
                                "cancelled",
                                "complete",
                                "error",
                                "resolved_manually",
                            ],
                        ),
                    ),
                    models.Q(
                        ("ended_at__isnull", True),
                        (
                            "state__in",
                            [
                                "enqueued",
                                "enqueued_for_orchestration",
                                "in_progress",
                                "pending",
                                "waiting_for_inquiry",
                                "waiting_for_retry",
                            ],
                        ),
                    ),
                    _connector="OR",
                ),
                name="step_is_ended_if_and_only_if_its_state_is",
            ),
        ),
        # and this one for the way there
        finality.keep_again(ENDED),
    ]
