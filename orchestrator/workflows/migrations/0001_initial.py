"""Templates, tasks, their steps, and what happened to them."""

import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models

from orchestrator.core import finality

TABLES = ("workflows_task", "workflows_step")


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("orchestrator", "0001_initial"),
    ]

    operations = [
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
        migrations.CreateModel(
            name="Task",
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
                (
                    "environment",
                    models.CharField(
                        blank=True,
                        help_text="The environment whose overrides apply.",
                        max_length=60,
                    ),
                ),
                ("context", models.JSONField(default=dict)),
                (
                    "priority",
                    models.SmallIntegerField(
                        default=0, help_text="The priority of its executions."
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("initializing", "initializing"),
                            ("enqueuing_steps", "enqueuing_steps"),
                            ("steps_in_process", "steps_in_process"),
                            ("evaluating_results", "evaluating_results"),
                            ("waiting_for_dependencies", "waiting_for_dependencies"),
                            ("waiting_for_retry", "waiting_for_retry"),
                            ("blocked_by_failures", "blocked_by_failures"),
                            ("complete", "complete"),
                            ("error", "error"),
                            ("cancelled", "cancelled"),
                            ("resolved_manually", "resolved_manually"),
                        ],
                        default="pending",
                        max_length=24,
                    ),
                ),
                (
                    "fence",
                    models.PositiveIntegerField(default=0, help_text="Grows with each transition."),
                ),
                ("state_entered_at", models.DateTimeField()),
                (
                    "clock_started_at",
                    models.DateTimeField(
                        help_text="From when staleness counts: the state's entry, later progress in it, or the retry that it waits for, if that is later."
                    ),
                ),
                (
                    "next_retry_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="When the first of its steps may be tried again.",
                        null=True,
                    ),
                ),
                ("identity", models.CharField(blank=True, max_length=64, null=True, unique=True)),
                ("idempotency_key", models.CharField(blank=True, max_length=200)),
                ("initiator", models.CharField(blank=True, max_length=150)),
                ("source_system", models.CharField(blank=True, max_length=150)),
                (
                    "reason",
                    models.CharField(blank=True, help_text="Why it was requested.", max_length=500),
                ),
                ("tags", models.JSONField(blank=True, default=list)),
                ("correlation_id", models.CharField(blank=True, max_length=100, null=True)),
                ("parent_correlation_id", models.CharField(blank=True, max_length=100, null=True)),
                ("requested_by", models.CharField(blank=True, max_length=150)),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="Step",
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
                ("name", models.CharField(max_length=70)),
                (
                    "template_step",
                    models.CharField(
                        help_text="Its name in the template; all workers of a batch have the same.",
                        max_length=60,
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("standard", "Standard"),
                            ("decision", "Decision"),
                            ("deferred", "Deferred"),
                            ("batchable", "Batchable"),
                            ("batch_worker", "Batch Worker"),
                        ],
                        default="standard",
                        max_length=12,
                    ),
                ),
                (
                    "batch",
                    models.JSONField(
                        blank=True,
                        help_text="Of a batch worker: index, start and end of its part.",
                        null=True,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("enqueued", "enqueued"),
                            ("in_progress", "in_progress"),
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
                (
                    "fence",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="Grows with each enqueueing and repair, and nothing resets it.",
                    ),
                ),
                ("state_entered_at", models.DateTimeField()),
                (
                    "attempts",
                    models.PositiveIntegerField(
                        default=0, help_text="Counts for the retry policy; a reset sets it to 0."
                    ),
                ),
                ("max_attempts", models.PositiveSmallIntegerField(default=3)),
                ("retryable", models.BooleanField(default=True)),
                ("next_retry_at", models.DateTimeField(blank=True, null=True)),
                ("last_failure_at", models.DateTimeField(blank=True, null=True)),
                (
                    "result",
                    models.JSONField(blank=True, help_text="What its children see.", null=True),
                ),
                (
                    "error",
                    models.JSONField(
                        blank=True, help_text="Why its last attempt failed.", null=True
                    ),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The decision or batchable step that created it.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="workflows.step",
                    ),
                ),
                (
                    "execution",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The latest one; only its end counts.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="orchestrator.execution",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="workflows.task",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="StepExecution",
            fields=[
                (
                    "execution",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="orchestrator.execution",
                    ),
                ),
                (
                    "fence",
                    models.PositiveIntegerField(
                        help_text="The step's attempt when it was enqueued."
                    ),
                ),
                (
                    "step",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="executions",
                        to="workflows.step",
                    ),
                ),
            ],
            options={
                "ordering": ["fence"],
            },
        ),
        migrations.CreateModel(
            name="TaskTemplate",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.CharField(max_length=29)),
                ("name", models.CharField(max_length=60)),
                (
                    "version",
                    models.CharField(help_text="Semantic version, such as 1.0.0.", max_length=40),
                ),
                ("description", models.TextField(blank=True)),
                ("definition", models.JSONField(help_text="As written in its YAML, checked.")),
                ("digest", models.CharField(help_text="SHA-256 of the definition.", max_length=64)),
                (
                    "enabled",
                    models.BooleanField(default=True, help_text="Whether tasks may be requested."),
                ),
                ("installed_at", models.DateTimeField()),
                (
                    "pack",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="templates",
                        to="orchestrator.pack",
                    ),
                ),
            ],
            options={
                "ordering": ["namespace", "name", "version"],
            },
        ),
        migrations.AddField(
            model_name="task",
            name="template",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="tasks",
                to="workflows.tasktemplate",
            ),
        ),
        migrations.CreateModel(
            name="TransitionRecord",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("event", models.CharField(max_length=24)),
                ("from_state", models.CharField(max_length=26)),
                ("to_state", models.CharField(max_length=26)),
                ("fence", models.PositiveIntegerField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.CharField(blank=True, max_length=500)),
                (
                    "processor",
                    models.CharField(help_text="Host and process that wrote it.", max_length=100),
                ),
                ("at", models.DateTimeField()),
                (
                    "step",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="history",
                        to="workflows.step",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="history",
                        to="workflows.task",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="StepDependency",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "tolerates_failure",
                    models.BooleanField(
                        default=False,
                        help_text="The child may begin although the parent has failed.",
                    ),
                ),
                (
                    "child",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="dependencies",
                        to="workflows.step",
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="dependents",
                        to="workflows.step",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("child"), models.F("parent"), name="step_dependency_is_unique"
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("id"),
                condition=models.Q(
                    ("state__in", ["enqueued", "enqueued_for_orchestration", "in_progress"])
                ),
                name="step_in_flight",
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(
                models.F("task"), models.F("name"), name="step_name_is_unique_in_task"
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
                        ("state__in", ["cancelled", "complete", "error", "resolved_manually"]),
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
                                "waiting_for_retry",
                            ],
                        ),
                    ),
                    _connector="OR",
                ),
                name="step_is_ended_if_and_only_if_its_state_is",
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "waiting_for_retry"), _negated=True),
                    ("next_retry_at__isnull", False),
                    _connector="OR",
                ),
                name="step_waiting_for_retry_has_due_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="tasktemplate",
            constraint=models.UniqueConstraint(
                models.F("namespace"),
                models.F("name"),
                models.F("version"),
                name="task_template_version_is_unique",
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
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("state_entered_at"),
                condition=models.Q(("ended_at__isnull", True), ("state", "pending")),
                name="task_not_begun",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("next_retry_at"),
                condition=models.Q(("ended_at__isnull", True), ("next_retry_at__isnull", False)),
                name="task_retry_due",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(models.F("template"), models.F("id"), name="task_by_template"),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                models.F("correlation_id"),
                condition=models.Q(("correlation_id__isnull", False)),
                name="task_by_correlation",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "pending",
                            "initializing",
                            "enqueuing_steps",
                            "steps_in_process",
                            "evaluating_results",
                            "waiting_for_dependencies",
                            "waiting_for_retry",
                            "blocked_by_failures",
                            "complete",
                            "error",
                            "cancelled",
                            "resolved_manually",
                        ],
                    )
                ),
                name="task_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="task",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", False),
                        ("state__in", ["cancelled", "complete", "error", "resolved_manually"]),
                    ),
                    models.Q(
                        ("ended_at__isnull", True),
                        (
                            "state__in",
                            [
                                "blocked_by_failures",
                                "enqueuing_steps",
                                "evaluating_results",
                                "initializing",
                                "pending",
                                "steps_in_process",
                                "waiting_for_dependencies",
                                "waiting_for_retry",
                            ],
                        ),
                    ),
                    _connector="OR",
                ),
                name="task_is_ended_if_and_only_if_its_state_is",
            ),
        ),
        migrations.AddIndex(
            model_name="transitionrecord",
            index=models.Index(models.F("task"), models.F("id"), name="transition_by_task"),
        ),
        migrations.AddIndex(
            model_name="transitionrecord",
            index=models.Index(
                models.F("step"),
                models.F("id"),
                condition=models.Q(("step__isnull", False)),
                name="transition_by_step",
            ),
        ),
        finality.keep(
            {table: ("state", ["complete", "cancelled", "resolved_manually"]) for table in TABLES},
            histories=["workflows_transitionrecord"],
        ),
        finality.tune(
            {
                **dict.fromkeys(TABLES, "fillfactor = 70, autovacuum_analyze_scale_factor = 0.02"),
                "workflows_transitionrecord": "autovacuum_analyze_scale_factor = 0.02",
            }
        ),
    ]
