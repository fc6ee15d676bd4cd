"""Bulk orders, their ids, and what was refused."""

import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models

from orchestrator.core import finality

ENDED = {"bulk_bulkorder": ("state", ["done", "stopped", "failed"])}
HISTORIES = ["bulk_refusal"]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("orchestrator", "0015_services"),
    ]

    operations = [
        migrations.CreateModel(
            name="BulkOrder",
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
                ("verb", models.CharField(max_length=20)),
                (
                    "query",
                    models.CharField(
                        blank=True,
                        help_text="The search; empty if rows were named.",
                        max_length=1000,
                    ),
                ),
                (
                    "looked_from",
                    models.DateTimeField(
                        help_text="A search that scans and names no time looked back to here.",
                        null=True,
                    ),
                ),
                ("reason", models.CharField(max_length=200)),
                (
                    "resolution",
                    models.CharField(blank=True, help_text="Of investigations.", max_length=20),
                ),
                ("ordered_by", models.CharField(max_length=150)),
                (
                    "identity_number",
                    models.BigIntegerField(
                        help_text="Whose present grants count, too; none for the terminal.",
                        null=True,
                    ),
                ),
                (
                    "key_owner",
                    models.BigIntegerField(
                        help_text="The number of the orderer's idempotency keys."
                    ),
                ),
                (
                    "grants",
                    models.JSONField(
                        help_text="What the orderer was granted at ordering, in layers."
                    ),
                ),
                (
                    "idempotency_key",
                    models.CharField(
                        help_text="Ordering again with it returns this order.",
                        max_length=200,
                        null=True,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("ordered", "ordered"),
                            ("working", "working"),
                            ("done", "done"),
                            ("stopped", "stopped"),
                            ("failed", "failed"),
                        ],
                        default="ordered",
                        max_length=7,
                    ),
                ),
                ("fence", models.PositiveIntegerField(default=0)),
                ("matched", models.PositiveIntegerField()),
                (
                    "position",
                    models.PositiveIntegerField(default=0, help_text="Rows that are worked off."),
                ),
                ("refused", models.PositiveIntegerField(default=0)),
                (
                    "tries",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="Of the batch at this position; counted before it begins.",
                    ),
                ),
                ("last_error", models.CharField(blank=True, max_length=500)),
                ("end_reason", models.CharField(blank=True, max_length=500)),
                ("ended_by", models.CharField(blank=True, max_length=150)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                (
                    "worked_at",
                    models.DateTimeField(help_text="When its latest batch began.", null=True),
                ),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(
                        models.F("worked_at"),
                        models.F("id"),
                        condition=models.Q(("ended_at__isnull", True)),
                        name="bulk_order_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("key_owner"),
                        models.F("idempotency_key"),
                        condition=models.Q(("idempotency_key__isnull", False)),
                        name="bulk_order_of_owner_and_key_is_unique",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["ordered", "working", "done", "stopped", "failed"])
                        ),
                        name="bulk_order_state_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("ended_at__isnull", False),
                                (
                                    "state__in",
                                    [
                                        "done",
                                        "failed",
                                        "stopped",
                                    ],
                                ),
                            ),
                            models.Q(
                                ("ended_at__isnull", True),
                                models.Q(
                                    (
                                        "state__in",
                                        [
                                            "done",
                                            "failed",
                                            "stopped",
                                        ],
                                    ),
                                    _negated=True,
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="bulk_order_is_ended_if_and_only_if_its_state_is",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("position__lte", models.F("matched")),
                            ("refused__lte", models.F("position")),
                        ),
                        name="bulk_order_has_refused_at_most_what_it_looked_at",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "done"), _negated=True),
                            ("position", models.F("matched")),
                            _connector="OR",
                        ),
                        name="bulk_order_is_done_if_all_of_it_is",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BulkPart",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("ids", models.JSONField()),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parts",
                        to="bulk.bulkorder",
                    ),
                ),
            ],
            options={
                "ordering": ["number"],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("order"), models.F("number"), name="bulk_part_of_order_is_unique"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Refusal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveIntegerField()),
                ("subject_id", models.UUIDField()),
                ("kind", models.CharField(max_length=50)),
                ("why", models.CharField(max_length=500)),
                ("at", models.DateTimeField()),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="refusals",
                        to="bulk.bulkorder",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("order"),
                        models.F("position"),
                        name="bulk_refusal_of_row_is_unique",
                    )
                ],
            },
        ),
        finality.keep(ENDED, histories=HISTORIES),
        finality.let_old_rows_go(ENDED, histories=HISTORIES),
    ]
