"""Inquiries, their history, and what they hold up."""

import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models

from orchestrator.core import finality

ENDED = {"inquiries_inquiry": ("state", ["responded", "timed_out", "cancelled"])}
HISTORIES = ["inquiries_inquiryrecord"]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("orchestrator", "0011_queues"),
    ]

    operations = [
        migrations.CreateModel(
            name="Inquiry",
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
                    "purpose",
                    models.CharField(
                        help_text="Names it among those of its execution, which asks once for each purpose.",
                        max_length=60,
                    ),
                ),
                (
                    "pack",
                    models.CharField(
                        help_text="For scopes: that of the asking action.", max_length=60
                    ),
                ),
                (
                    "asked_by",
                    models.CharField(help_text="Whoever is behind the question.", max_length=150),
                ),
                (
                    "asker_number",
                    models.BigIntegerField(
                        default=0, help_text="The same, as a number of the authorizer."
                    ),
                ),
                (
                    "tree",
                    models.CharField(
                        blank=True,
                        help_text="What executions of the same tree have in common.",
                        max_length=100,
                    ),
                ),
                ("prompt", models.TextField()),
                (
                    "schema",
                    models.JSONField(default=dict, help_text="JSON Schema of the response."),
                ),
                (
                    "assignees",
                    models.JSONField(
                        default=list,
                        help_text="Who may answer, by name or role; empty for all with permission.",
                    ),
                ),
                ("allow_requester", models.BooleanField(default=False)),
                (
                    "on_timeout",
                    models.CharField(
                        choices=[("error", "error"), ("complete", "complete")],
                        default="error",
                        max_length=8,
                    ),
                ),
                (
                    "default",
                    models.JSONField(
                        help_text="The response that a timeout stands for.", null=True
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("responded", "responded"),
                            ("timed_out", "timed_out"),
                            ("cancelled", "cancelled"),
                        ],
                        default="pending",
                        max_length=9,
                    ),
                ),
                ("fence", models.PositiveIntegerField(default=0)),
                ("response", models.JSONField(null=True)),
                ("answered_by", models.CharField(blank=True, max_length=150)),
                ("answered_at", models.DateTimeField(null=True)),
                (
                    "answer_key",
                    models.CharField(
                        help_text="Repeating an answer with it is safe.", max_length=200, null=True
                    ),
                ),
                (
                    "reason",
                    models.CharField(blank=True, help_text="Why it was cancelled.", max_length=500),
                ),
                ("ended_by", models.CharField(blank=True, max_length=150)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "asked_by_execution",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        help_text="The execution that asks, if one does.",
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="orchestrator.execution",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "inquiries",
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="InquiryRecord",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("event", models.CharField(max_length=20)),
                ("from_state", models.CharField(max_length=9)),
                ("to_state", models.CharField(max_length=9)),
                ("fence", models.PositiveIntegerField()),
                ("actor", models.CharField(max_length=150)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("at", models.DateTimeField()),
                (
                    "inquiry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="history",
                        to="inquiries.inquiry",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="InquiryWait",
            fields=[
                (
                    "execution",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="orchestrator.execution",
                    ),
                ),
                ("since", models.DateTimeField()),
                (
                    "resumed_at",
                    models.DateTimeField(
                        help_text="When its execution ended, by the inquiry or before.", null=True
                    ),
                ),
                (
                    "inquiry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="waits",
                        to="inquiries.inquiry",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="inquiry",
            index=models.Index(
                models.F("expires_at"),
                condition=models.Q(("ended_at__isnull", True)),
                name="inquiry_open_by_expiry",
            ),
        ),
        migrations.AddIndex(
            model_name="inquiry",
            index=models.Index(models.F("state"), models.F("id"), name="inquiry_by_state"),
        ),
        migrations.AddConstraint(
            model_name="inquiry",
            constraint=models.UniqueConstraint(
                models.F("asked_by_execution"),
                models.F("purpose"),
                condition=models.Q(("asked_by_execution__isnull", False)),
                name="inquiry_of_execution_and_purpose_is_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="inquiry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["pending", "responded", "timed_out", "cancelled"])
                ),
                name="inquiry_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="inquiry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", False),
                        (
                            "state__in",
                            [
                                "cancelled",
                                "responded",
                                "timed_out",
                            ],
                        ),
                    ),
                    models.Q(("ended_at__isnull", True), ("state", "pending")),
                    _connector="OR",
                ),
                name="inquiry_is_ended_if_and_only_if_its_state_is",
            ),
        ),
        migrations.AddConstraint(
            model_name="inquiry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("answered_at__isnull", False),
                        ("response__isnull", False),
                        ("state", "responded"),
                    ),
                    models.Q(
                        ("answered_at__isnull", True),
                        ("response__isnull", True),
                        models.Q(("state", "responded"), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="inquiry_is_responded_if_and_only_if_it_has_an_answer",
            ),
        ),
        migrations.AddConstraint(
            model_name="inquiry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("answered_at__isnull", True),
                    ("answered_at__lt", models.F("expires_at")),
                    _connector="OR",
                ),
                name="inquiry_is_answered_before_it_expires",
            ),
        ),
        migrations.AddConstraint(
            model_name="inquiry",
            constraint=models.CheckConstraint(
                condition=models.Q(("expires_at__gt", models.F("created_at"))),
                name="inquiry_expires_after_its_creation",
            ),
        ),
        migrations.AddConstraint(
            model_name="inquiry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("default__isnull", False), ("on_timeout", "complete")),
                    models.Q(("default__isnull", True), ("on_timeout", "error")),
                    _connector="OR",
                ),
                name="inquiry_has_default_if_and_only_if_a_timeout_completes",
            ),
        ),
        migrations.AddConstraint(
            model_name="inquiryrecord",
            constraint=models.UniqueConstraint(models.F("inquiry"), name="inquiry_ends_once"),
        ),
        migrations.AddIndex(
            model_name="inquirywait",
            index=models.Index(
                models.F("execution"),
                condition=models.Q(("resumed_at__isnull", True)),
                name="inquiry_wait_open",
            ),
        ),
        finality.keep(ENDED, histories=HISTORIES),
        finality.let_old_rows_go(ENDED, histories=HISTORIES),
    ]
