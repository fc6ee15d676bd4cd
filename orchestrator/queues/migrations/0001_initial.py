"""Queues, their gates, and the tickets of messages."""

import django.db.models.deletion
from django.db import migrations, models

from orchestrator.core import finality


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("orchestrator", "0011_queues"),
    ]

    operations = [
        migrations.CreateModel(
            name="WorkQueue",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100, unique=True)),
                ("description", models.TextField(blank=True)),
                (
                    "revision",
                    models.PositiveIntegerField(
                        default=1, help_text="Grows with each change of its definition."
                    ),
                ),
                (
                    "accepts",
                    models.BooleanField(default=True, help_text="Refuses new executions if not."),
                ),
                (
                    "paused_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Since when it starts nothing; it accepts all the same.",
                        null=True,
                    ),
                ),
                ("pause_reason", models.CharField(blank=True, max_length=500)),
                ("paused_by", models.CharField(blank=True, max_length=150)),
                (
                    "retired_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Since when nobody can use it. Its name stays taken.",
                        null=True,
                    ),
                ),
                ("default_priority", models.SmallIntegerField(default=0)),
                ("deadline_seconds", models.FloatField(blank=True, null=True)),
                ("timeout_seconds", models.FloatField(blank=True, null=True)),
                (
                    "retry_limit",
                    models.PositiveSmallIntegerField(
                        blank=True,
                        help_text="Attempts after the first; empty for the retry policy of each action.",
                        null=True,
                    ),
                ),
                (
                    "prefetch_buffer",
                    models.PositiveIntegerField(
                        default=1, help_text="Executions sent to a worker beyond its slots."
                    ),
                ),
                (
                    "max_running",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="The most that workers hold at once, over all of them.",
                        null=True,
                    ),
                ),
                (
                    "defer_seconds",
                    models.FloatField(
                        default=5.0,
                        help_text="The first pause of an execution whose action rejects it for now.",
                    ),
                ),
                (
                    "defer_pause_seconds",
                    models.FloatField(
                        default=30.0,
                        help_text="The pause of a worker's subscription after such a rejection.",
                    ),
                ),
                (
                    "health_check",
                    models.CharField(
                        blank=True,
                        help_text="A callable that ends such a pause early.",
                        max_length=200,
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                (
                    "action",
                    models.ForeignKey(
                        blank=True,
                        help_text="What it runs for requests that name no action.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="orchestrator.action",
                    ),
                ),
                (
                    "pack",
                    models.ForeignKey(
                        blank=True,
                        help_text="The pack that defines it; empty if somebody made it.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="orchestrator.pack",
                    ),
                ),
            ],
            options={
                "verbose_name": "queue",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Gate",
            fields=[
                (
                    "queue",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="gate",
                        serialize=False,
                        to="queues.workqueue",
                    ),
                ),
                (
                    "broker",
                    models.CharField(
                        default="default", help_text="Alias of its broker.", max_length=60
                    ),
                ),
                ("input_queue", models.CharField(max_length=255)),
                (
                    "retry_queue",
                    models.CharField(
                        blank=True, help_text="Empty for the input queue.", max_length=255
                    ),
                ),
                (
                    "rejected_queue",
                    models.CharField(blank=True, help_text="Empty for no copies.", max_length=255),
                ),
                (
                    "output_queue",
                    models.CharField(blank=True, help_text="Empty for no answers.", max_length=255),
                ),
                (
                    "paused_queue",
                    models.CharField(
                        blank=True, help_text="Empty: paused work stays here.", max_length=255
                    ),
                ),
                (
                    "queue_type",
                    models.CharField(
                        choices=[("classic", "Classic"), ("quorum", "Quorum")],
                        default="quorum",
                        max_length=7,
                    ),
                ),
                ("max_priority", models.PositiveSmallIntegerField(default=0)),
                (
                    "custody",
                    models.CharField(
                        choices=[("result", "Result"), ("row", "Row")],
                        default="result",
                        max_length=6,
                    ),
                ),
                (
                    "count_redelivered",
                    models.BooleanField(
                        default=True,
                        help_text="A redelivery without a ticket counts as a lost start.",
                    ),
                ),
                (
                    "retry_by",
                    models.CharField(
                        choices=[("muster", "Muster"), ("queue", "Queue")],
                        default="muster",
                        max_length=6,
                    ),
                ),
                (
                    "consumes_retry",
                    models.BooleanField(
                        default=True, help_text="Takes messages from the retry queue, too."
                    ),
                ),
                (
                    "once",
                    models.BooleanField(
                        default=False,
                        help_text="Confirms an action that must not be started again once lost.",
                    ),
                ),
                (
                    "classifiers",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="By task classifier: action, versions, answer.",
                    ),
                ),
                (
                    "codec",
                    models.CharField(
                        choices=[("json", "Json"), ("text", "Text"), ("raw", "Raw")],
                        default="json",
                        max_length=4,
                    ),
                ),
                ("context_key", models.CharField(blank=True, max_length=200)),
                (
                    "divert",
                    models.CharField(
                        choices=[("forward", "Forward"), ("run", "Run"), ("refuse", "Refuse")],
                        default="refuse",
                        max_length=7,
                    ),
                ),
                (
                    "forward_to",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Patterns of queue names that it may forward to.",
                    ),
                ),
                (
                    "allow_loop",
                    models.BooleanField(
                        default=False, help_text="Answers may go to the queue that it reads."
                    ),
                ),
                (
                    "status_check",
                    models.BooleanField(
                        default=True, help_text="Asks the status URL of a message's job."
                    ),
                ),
                (
                    "answer_inactive",
                    models.BooleanField(
                        default=False, help_text="Answers messages of jobs that are over."
                    ),
                ),
                (
                    "reply_to",
                    models.BooleanField(
                        default=False,
                        help_text="Answers to the queue that a message names, if it does.",
                    ),
                ),
                (
                    "trusted_users",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="AMQP users whose messages are taken; empty for all.",
                    ),
                ),
                ("service_name", models.CharField(blank=True, max_length=100)),
                ("service_version", models.CharField(blank=True, max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name="QueueEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("created", "Created"),
                            ("changed", "Changed"),
                            ("paused", "Paused"),
                            ("resumed", "Resumed"),
                            ("retired", "Retired"),
                        ],
                        max_length=10,
                    ),
                ),
                ("revision", models.PositiveIntegerField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("at", models.DateTimeField()),
                (
                    "queue",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="queues.workqueue",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Ticket",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "task_id",
                    models.CharField(blank=True, help_text="Empty if unreadable.", max_length=200),
                ),
                (
                    "digest",
                    models.CharField(
                        help_text="SHA-256 of classifier, version, data and context.", max_length=64
                    ),
                ),
                (
                    "tries",
                    models.PositiveIntegerField(
                        default=0, help_text="Lost starts, as the message came."
                    ),
                ),
                (
                    "body",
                    models.BinaryField(
                        help_text="Dropped once it is answered, unless refused.", null=True
                    ),
                ),
                ("headers", models.JSONField(blank=True, default=dict)),
                ("properties", models.JSONField(blank=True, default=dict)),
                (
                    "envelope",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="The members of the message, without its data.",
                    ),
                ),
                (
                    "refusal",
                    models.JSONField(
                        help_text="Why there is no execution, if there is none.", null=True
                    ),
                ),
                (
                    "moved_at",
                    models.DateTimeField(
                        help_text="Since when the message is on another queue again.", null=True
                    ),
                ),
                (
                    "holder",
                    models.CharField(
                        blank=True,
                        help_text="The executor that holds the delivery.",
                        max_length=150,
                    ),
                ),
                ("held_at", models.DateTimeField(null=True)),
                ("status_checked_at", models.DateTimeField(null=True)),
                (
                    "told_at",
                    models.DateTimeField(help_text="When its answer was confirmed.", null=True),
                ),
                ("told_to", models.CharField(blank=True, max_length=255)),
                ("tell_tries", models.PositiveIntegerField(default=0)),
                ("next_tell_at", models.DateTimeField(null=True)),
                ("last_error", models.CharField(blank=True, max_length=500)),
                ("created_at", models.DateTimeField()),
                (
                    "continues",
                    models.ForeignKey(
                        help_text="The ticket of the same task before it was moved to another queue.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="queues.ticket",
                    ),
                ),
                (
                    "execution",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ticket",
                        to="orchestrator.execution",
                    ),
                ),
                (
                    "gate",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tickets",
                        to="queues.gate",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.AddConstraint(
            model_name="gate",
            constraint=models.UniqueConstraint(
                models.F("broker"), models.F("input_queue"), name="gate_input_queue_has_one_gate"
            ),
        ),
        migrations.AddConstraint(
            model_name="gate",
            constraint=models.CheckConstraint(
                condition=models.Q(("queue_type", "classic"), ("max_priority", 0), _connector="OR"),
                name="gate_quorum_queues_have_no_priorities",
            ),
        ),
        migrations.AddConstraint(
            model_name="gate",
            constraint=models.CheckConstraint(
                condition=models.Q(("max_priority__lte", 255)), name="gate_max_priority_fits"
            ),
        ),
        migrations.AddConstraint(
            model_name="gate",
            constraint=models.CheckConstraint(
                condition=models.Q(("input_queue", ""), _negated=True), name="gate_has_input_queue"
            ),
        ),
        migrations.AddConstraint(
            model_name="workqueue",
            constraint=models.CheckConstraint(
                condition=models.Q(("name__regex", "^[a-z0-9][a-z0-9._-]{0,99}$")),
                name="queue_name_is_plain",
            ),
        ),
        migrations.AddConstraint(
            model_name="workqueue",
            constraint=models.CheckConstraint(
                condition=models.Q(("name", "default"), _negated=True),
                name="queue_name_is_not_default",
            ),
        ),
        migrations.AddConstraint(
            model_name="workqueue",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("max_running__isnull", True), ("max_running__gte", 1), _connector="OR"
                ),
                name="queue_max_running_is_positive",
            ),
        ),
        migrations.AddConstraint(
            model_name="workqueue",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("retired_at__isnull", True), ("accepts", False), _connector="OR"
                ),
                name="queue_retired_accepts_nothing",
            ),
        ),
        migrations.AddIndex(
            model_name="ticket",
            index=models.Index(
                models.F("gate"),
                models.F("id"),
                condition=models.Q(("told_at__isnull", True)),
                name="ticket_untold",
            ),
        ),
        migrations.AddConstraint(
            model_name="ticket",
            constraint=models.UniqueConstraint(
                models.F("gate"),
                models.F("task_id"),
                models.F("digest"),
                condition=models.Q(("moved_at__isnull", True)),
                name="ticket_of_task_is_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="ticket",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("execution__isnull", False), ("refusal__isnull", True)),
                    models.Q(("execution__isnull", True), ("refusal__isnull", False)),
                    _connector="OR",
                ),
                name="ticket_has_execution_or_refusal",
            ),
        ),
        migrations.AddConstraint(
            model_name="ticket",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("continues__isnull", True), ("continues__lt", models.F("id")), _connector="OR"
                ),
                name="ticket_continues_an_earlier_one",
            ),
        ),
        finality.keep({}, histories=["queues_queueevent"]),
    ]
