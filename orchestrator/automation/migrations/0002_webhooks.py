import django.db.models.deletion
import uuid_utils.compat
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("automation", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Webhook",
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
                    "path",
                    models.CharField(
                        help_text="What follows /api/v1/hooks/.", max_length=100, unique=True
                    ),
                ),
                (
                    "trigger",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="webhook",
                        to="automation.trigger",
                    ),
                ),
            ],
            options={
                "ordering": ["path"],
            },
        ),
        migrations.CreateModel(
            name="DeliveryCount",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "outcome",
                    models.CharField(help_text="See `hooks.deliveries.Outcome`.", max_length=20),
                ),
                ("total", models.BigIntegerField(default=0)),
                ("last_at", models.DateTimeField()),
                ("last_detail", models.CharField(blank=True, max_length=200)),
                ("last_address", models.CharField(blank=True, max_length=45)),
                (
                    "webhook",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="automation.webhook",
                    ),
                ),
            ],
            options={
                "ordering": ["outcome"],
            },
        ),
        migrations.AddConstraint(
            model_name="webhook",
            constraint=models.CheckConstraint(
                condition=models.Q(("path__regex", "^[a-z0-9][a-z0-9._/-]*$")),
                name="webhook_path_is_plain",
            ),
        ),
        migrations.AddConstraint(
            model_name="deliverycount",
            constraint=models.UniqueConstraint(
                models.F("webhook"), models.F("outcome"), name="delivery_count_is_one_number"
            ),
        ),
    ]
