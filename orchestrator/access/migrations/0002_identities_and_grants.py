"""Identities and grants, and what tokens need to belong to one."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Identity",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "service_name",
                    models.CharField(
                        blank=True,
                        help_text="Empty for a person, who has the name of its user.",
                        max_length=100,
                    ),
                ),
                ("description", models.CharField(blank=True, max_length=200)),
                (
                    "is_legacy",
                    models.BooleanField(
                        default=False,
                        help_text="Owns the tokens that were made before tokens had owners.",
                    ),
                ),
                ("created_at", models.DateTimeField()),
                (
                    "disabled_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Of a service; a person is disabled as a user.",
                        null=True,
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"verbose_name_plural": "identities"},
        ),
        migrations.CreateModel(
            name="Grant",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "gives",
                    models.CharField(help_text="A role, or a single permission.", max_length=60),
                ),
                (
                    "scope",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Lists of packs and namespaces, labels; empty for all.",
                    ),
                ),
                ("granted_by", models.CharField(max_length=150)),
                ("granted_at", models.DateTimeField()),
                (
                    "identity",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="access.identity",
                    ),
                ),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.AddConstraint(
            model_name="identity",
            constraint=models.UniqueConstraint(
                models.F("service_name"),
                condition=models.Q(("user__isnull", True)),
                name="identity_of_service_has_name_of_its_own",
            ),
        ),
        migrations.AddConstraint(
            model_name="identity",
            constraint=models.CheckConstraint(
                condition=models.Q(("user__isnull", True), ("service_name", ""), _connector="XOR"),
                name="identity_is_of_person_or_service",
            ),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="created_by",
            field=models.CharField(blank=True, max_length=150),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="grants",
            field=models.JSONField(
                blank=True,
                help_text="Narrows what its owner may do; empty for all of that.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="networks",
            field=models.JSONField(
                blank=True, default=list, help_text="Networks of its callers; empty for any."
            ),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="superseded_at",
            field=models.DateTimeField(
                blank=True,
                help_text="When it was rotated: another text has its name.",
                null=True,
            ),
        ),
        # a column that every row fills comes with 0004, after 0003 has filled it
        migrations.AddField(
            model_name="apitoken",
            name="identity",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="tokens",
                to="access.identity",
            ),
        ),
    ]
