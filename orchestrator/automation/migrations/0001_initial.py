"""Triggers, events, rules, and what they led to."""

import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models

import orchestrator.automation.states
from orchestrator.core import finality

ENDED = {
    "automation_enforcement": ("state", ["executed", "rejected", "suppressed"]),
    "automation_event": ("evaluated_at", []),
}


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("access", "0007_audit"),
        ("orchestrator", "0008_pruning"),
    ]

    operations = [
        migrations.CreateModel(
            name="Revision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("stamp", models.UUIDField()),
            ],
        ),
        migrations.CreateModel(
            name="Trigger",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("parameters", models.JSONField(blank=True, default=dict)),
                ("digest", models.CharField(help_text="SHA-256 of its parameters.", max_length=64)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Rule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("ref", models.CharField(help_text="`pack.name`", max_length=130, unique=True)),
                (
                    "enabled_by_pack",
                    models.BooleanField(default=True, help_text="As its definition says."),
                ),
                (
                    "enabled_override",
                    models.BooleanField(
                        blank=True, help_text="As an operator said; outlives upgrades.", null=True
                    ),
                ),
                ("retired_at", models.DateTimeField(blank=True, null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        help_text="With whose permissions it runs its action; empty is the installation itself.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="access.identity",
                    ),
                ),
                (
                    "pack",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rules",
                        to="orchestrator.pack",
                    ),
                ),
            ],
            options={
                "ordering": ["ref"],
            },
        ),
        migrations.CreateModel(
            name="Event",
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
                    "type_ref",
                    models.CharField(help_text="The type of its trigger.", max_length=130),
                ),
                (
                    "dedup_key",
                    models.CharField(
                        blank=True,
                        help_text="Reports of the trigger with the same key are the same event.",
                        max_length=200,
                        null=True,
                    ),
                ),
                ("payload", models.JSONField(default=dict)),
                (
                    "occurred_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="As it was reported; nothing depends on it.",
                        null=True,
                    ),
                ),
                ("received_at", models.DateTimeField()),
                ("evaluated_at", models.DateTimeField(blank=True, null=True)),
                (
                    "matched",
                    models.PositiveSmallIntegerField(
                        blank=True, help_text="How many rules matched.", null=True
                    ),
                ),
                (
                    "problem",
                    models.CharField(
                        blank=True, help_text="Why no rule was asked, if so.", max_length=200
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        help_text="`api`, `command`, `execution`, `hook`, `replay`, `sensor` or `timer`.",
                        max_length=60,
                    ),
                ),
                ("sent_by", models.CharField(blank=True, max_length=150)),
                ("correlation_id", models.CharField(blank=True, max_length=100, null=True)),
                (
                    "depth",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="How many rules have led from the first cause to it."
                    ),
                ),
                (
                    "cause_execution_id",
                    models.UUIDField(
                        blank=True,
                        help_text="The execution that it is about; that may be gone.",
                        null=True,
                    ),
                ),
                (
                    "only_rule",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="Of a replay: no other rule is asked.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="automation.rule",
                    ),
                ),
                (
                    "trigger",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="events",
                        to="automation.trigger",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="RuleRevision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("description", models.TextField(blank=True)),
                ("criteria", models.JSONField(blank=True, default=dict)),
                ("action_ref", models.CharField(max_length=130)),
                ("parameters", models.JSONField(blank=True, default=dict)),
                (
                    "options",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Such as priority, retry, suppress, backstop; see `options.OPTIONS`.",
                    ),
                ),
                ("digest", models.CharField(help_text="SHA-256 of its content.", max_length=64)),
                ("made_by", models.CharField(blank=True, max_length=150)),
                ("made_at", models.DateTimeField()),
                (
                    "rule",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="revisions",
                        to="automation.rule",
                    ),
                ),
            ],
            options={
                "ordering": ["rule", "number"],
            },
        ),
        migrations.AddField(
            model_name="rule",
            name="revision",
            field=models.ForeignKey(
                db_index=False,
                help_text="What it says now.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="automation.rulerevision",
            ),
        ),
        migrations.CreateModel(
            name="Enforcement",
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
                    "state",
                    models.CharField(
                        choices=[
                            ("created", "created"),
                            ("executed", "executed"),
                            ("rejected", "rejected"),
                            ("suppressed", "suppressed"),
                        ],
                        default=orchestrator.automation.states.EnforcementState["CREATED"],
                        max_length=10,
                    ),
                ),
                ("fence", models.PositiveIntegerField(default=0)),
                (
                    "reason",
                    models.CharField(
                        blank=True, help_text="Why there is no execution.", max_length=40
                    ),
                ),
                (
                    "problem",
                    models.JSONField(blank=True, help_text="What exactly was refused.", null=True),
                ),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "execution",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="orchestrator.execution",
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="enforcements",
                        to="automation.event",
                    ),
                ),
                (
                    "rule",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="enforcements",
                        to="automation.rule",
                    ),
                ),
                (
                    "revision",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="automation.rulerevision",
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="Suppression",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "key_hash",
                    models.CharField(
                        help_text="SHA-256 of what counts as the same.", max_length=64
                    ),
                ),
                ("until", models.DateTimeField(blank=True, null=True)),
                (
                    "hits",
                    models.PositiveIntegerField(
                        default=0, help_text="How many answers it suppressed."
                    ),
                ),
                (
                    "rule",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="automation.rule",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Timer",
            fields=[
                (
                    "trigger",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="timer",
                        serialize=False,
                        to="automation.trigger",
                    ),
                ),
                (
                    "next_fire_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Empty while no enabled rule waits for it, and at its end.",
                        null=True,
                    ),
                ),
                (
                    "last_fired_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="The time that was last due, or since when rules wait.",
                        null=True,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Watermark",
            fields=[
                (
                    "trigger",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="automation.trigger",
                    ),
                ),
                (
                    "read_id",
                    models.BigIntegerField(help_text="Nothing up to this row is read again."),
                ),
                (
                    "seen_id",
                    models.BigIntegerField(
                        help_text="The newest row at one look; those before it may have been written later."
                    ),
                ),
                (
                    "seen_xid",
                    models.BigIntegerField(
                        default=0,
                        help_text="When all transactions up to this one are over, none is any more.",
                    ),
                ),
                (
                    "beyond_ends",
                    models.BooleanField(
                        default=False, help_text="Wants other statuses than terminal ones."
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="rule",
            name="trigger",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="rules",
                to="automation.trigger",
            ),
        ),
        migrations.CreateModel(
            name="TriggerType",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("ref", models.CharField(help_text="`pack.name`", max_length=130, unique=True)),
                ("description", models.TextField(blank=True)),
                (
                    "parameters_schema",
                    models.JSONField(blank=True, default=dict, help_text="JSON Schema."),
                ),
                (
                    "payload_schema",
                    models.JSONField(blank=True, default=dict, help_text="JSON Schema."),
                ),
                (
                    "retired_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Since when it is no longer in its pack: takes no events.",
                        null=True,
                    ),
                ),
                ("updated_at", models.DateTimeField()),
                (
                    "pack",
                    models.ForeignKey(
                        blank=True,
                        help_text="Empty for those that Muster brings itself.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="trigger_types",
                        to="orchestrator.pack",
                    ),
                ),
            ],
            options={
                "ordering": ["ref"],
            },
        ),
        migrations.AddField(
            model_name="trigger",
            name="type",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="triggers",
                to="automation.triggertype",
            ),
        ),
        migrations.AddConstraint(
            model_name="rulerevision",
            constraint=models.UniqueConstraint(
                models.F("rule"), models.F("number"), name="rule_revision_is_unique"
            ),
        ),
        migrations.AddIndex(
            model_name="enforcement",
            index=models.Index(
                models.F("id"),
                condition=models.Q(("ended_at__isnull", True)),
                name="enforcement_open",
            ),
        ),
        migrations.AddIndex(
            model_name="enforcement",
            index=models.Index(models.F("rule"), models.F("id"), name="enforcement_by_rule"),
        ),
        migrations.AddConstraint(
            model_name="enforcement",
            constraint=models.UniqueConstraint(
                models.F("rule"), models.F("event"), name="enforcement_of_rule_and_event_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="enforcement",
            constraint=models.UniqueConstraint(
                models.F("execution"),
                condition=models.Q(("execution__isnull", False)),
                name="enforcement_has_execution_of_its_own",
            ),
        ),
        migrations.AddConstraint(
            model_name="enforcement",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["created", "executed", "rejected", "suppressed"])
                ),
                name="enforcement_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="enforcement",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("ended_at__isnull", False),
                        (
                            "state__in",
                            [
                                orchestrator.automation.states.EnforcementState["EXECUTED"],
                                orchestrator.automation.states.EnforcementState["REJECTED"],
                                orchestrator.automation.states.EnforcementState["SUPPRESSED"],
                            ],
                        ),
                    ),
                    models.Q(("ended_at__isnull", True), ("state", "created")),
                    _connector="OR",
                ),
                name="enforcement_is_ended_if_and_only_if_its_state_is",
            ),
        ),
        migrations.AddConstraint(
            model_name="enforcement",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("execution__isnull", False), ("state", "executed")),
                    models.Q(
                        ("execution__isnull", True), models.Q(("state", "executed"), _negated=True)
                    ),
                    _connector="OR",
                ),
                name="enforcement_is_executed_if_and_only_if_it_has_an_execution",
            ),
        ),
        migrations.AddConstraint(
            model_name="enforcement",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "rejected"), _negated=True),
                    models.Q(("reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="enforcement_that_is_rejected_has_a_reason",
            ),
        ),
        migrations.AddConstraint(
            model_name="suppression",
            constraint=models.UniqueConstraint(
                models.F("rule"), models.F("key_hash"), name="suppression_is_unique"
            ),
        ),
        migrations.AddIndex(
            model_name="timer",
            index=models.Index(
                models.F("next_fire_at"),
                condition=models.Q(("next_fire_at__isnull", False)),
                name="timer_due",
            ),
        ),
        migrations.AddIndex(
            model_name="rule",
            index=models.Index(
                models.F("trigger"),
                condition=models.Q(("retired_at__isnull", True)),
                name="rule_by_trigger",
            ),
        ),
        migrations.AddConstraint(
            model_name="rule",
            constraint=models.CheckConstraint(
                condition=models.Q(("ref__regex", "^[a-z0-9_-]+\\.[a-z0-9_.-]+$")),
                name="rule_ref_is_pack_dot_name",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                models.F("received_at"),
                models.F("id"),
                condition=models.Q(("evaluated_at__isnull", True)),
                name="event_unevaluated",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(models.F("trigger"), models.F("id"), name="event_by_trigger"),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                models.F("correlation_id"),
                condition=models.Q(("correlation_id__isnull", False)),
                name="event_by_correlation",
            ),
        ),
        migrations.AddConstraint(
            model_name="event",
            constraint=models.UniqueConstraint(
                models.F("trigger"),
                models.F("dedup_key"),
                condition=models.Q(("dedup_key__isnull", False)),
                name="event_key_is_unique_in_trigger",
            ),
        ),
        migrations.AddConstraint(
            model_name="event",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("evaluated_at__isnull", True), ("matched__isnull", True)),
                    models.Q(("evaluated_at__isnull", False), ("matched__isnull", False)),
                    _connector="OR",
                ),
                name="event_is_evaluated_if_and_only_if_matches_are_counted",
            ),
        ),
        migrations.AddConstraint(
            model_name="event",
            constraint=models.CheckConstraint(
                condition=models.Q(("depth__range", (0, 11))), name="event_depth_is_limited"
            ),
        ),
        migrations.AddConstraint(
            model_name="triggertype",
            constraint=models.CheckConstraint(
                condition=models.Q(("ref__regex", "^[a-z0-9_-]+\\.[a-z0-9_.-]+$")),
                name="trigger_type_ref_is_pack_dot_name",
            ),
        ),
        migrations.AddConstraint(
            model_name="trigger",
            constraint=models.UniqueConstraint(
                models.F("type"), models.F("digest"), name="trigger_parameters_are_unique"
            ),
        ),
        finality.keep(ENDED, histories=["automation_rulerevision"]),
        finality.let_old_rows_go(ENDED, histories=[]),
        finality.tune(
            # each row is updated once, and should stay on its page
            dict.fromkeys(ENDED, "fillfactor = 80, autovacuum_analyze_scale_factor = 0.02")
        ),
    ]
