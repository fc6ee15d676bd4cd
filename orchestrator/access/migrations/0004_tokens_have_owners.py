"""Every token has an owner, and the name of a token that is revoked or rotated is free."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("access", "0003_legacy_tokens")]

    operations = [
        migrations.AlterModelOptions(
            name="apitoken", options={"ordering": ["name", "pk"], "verbose_name": "API token"}
        ),
        migrations.AlterField(
            model_name="apitoken", name="name", field=models.CharField(max_length=100)
        ),
        migrations.AlterField(
            model_name="apitoken",
            name="identity",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="tokens",
                to="access.identity",
            ),
        ),
        migrations.AddConstraint(
            model_name="apitoken",
            constraint=models.UniqueConstraint(
                models.F("name"),
                condition=models.Q(("revoked_at__isnull", True), ("superseded_at__isnull", True)),
                name="token_in_use_has_name_of_its_own",
            ),
        ),
    ]
