"""The audit: events, and the chain that seals them."""

from django.db import migrations, models

from orchestrator.core import finality


class Migration(migrations.Migration):
    dependencies = [
        ("access", "0006_key"),
        # the function that the triggers call
        ("orchestrator", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditSeal",
            fields=[
                (
                    "position",
                    models.BigIntegerField(db_column="id", primary_key=True, serialize=False),
                ),
                ("event_id", models.BigIntegerField(unique=True)),
                ("previous", models.CharField(max_length=64)),
                ("hash", models.CharField(max_length=64)),
            ],
            options={"ordering": ["position"]},
        ),
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "actor_kind",
                    models.CharField(help_text="Such as user, token, command.", max_length=20),
                ),
                ("actor_id", models.CharField(blank=True, max_length=40)),
                ("actor", models.CharField(help_text="The name, as in histories.", max_length=150)),
                ("token_prefix", models.CharField(blank=True, max_length=12)),
                (
                    "permission",
                    models.CharField(
                        help_text="What it takes: `executions.cancel`.", max_length=60
                    ),
                ),
                ("object_kind", models.CharField(blank=True, max_length=40)),
                ("object_id", models.CharField(blank=True, max_length=200)),
                (
                    "decision",
                    models.CharField(
                        choices=[("allowed", "Allowed"), ("denied", "Denied")], max_length=7
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("address", models.CharField(blank=True, max_length=45)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(models.F("actor"), models.F("id"), name="audit_by_actor"),
                    models.Index(models.F("object_id"), models.F("id"), name="audit_by_object"),
                ],
            },
        ),
        finality.keep(
            # what was revoked stays revoked
            {"access_apitoken": ("revoked_at", ()), "access_key": ("revoked_at", ())},
            histories=["access_auditevent", "access_auditseal"],
        ),
    ]
