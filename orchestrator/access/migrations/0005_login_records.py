"""Failed logins."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("access", "0004_tokens_have_owners")]

    operations = [
        migrations.CreateModel(
            name="LoginRecord",
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
                        choices=[("address", "Address"), ("known", "Known"), ("name", "Name")],
                        max_length=7,
                    ),
                ),
                ("key", models.CharField(max_length=210)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("last_at", models.DateTimeField(db_index=True)),
                ("free_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "key"), name="one_login_record_of_each")
                ],
            },
        ),
    ]
