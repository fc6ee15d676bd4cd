"""Tokens that were made before tokens had owners belong to a service account that is an admin: they
may do what they could do."""

from django.db import migrations
from django.utils import timezone

NAME = "legacy-tokens"


def adopt(apps, schema_editor):
    alias = schema_editor.connection.alias
    tokens = apps.get_model("access", "ApiToken").objects.using(alias).filter(identity=None)
    if not tokens.exists():
        return
    now = timezone.now()
    identity = (
        apps.get_model("access", "Identity")
        .objects.using(alias)
        .create(
            service_name=NAME,
            description="Owns the tokens that were made before tokens had owners.",
            is_legacy=True,
            created_at=now,
        )
    )
    apps.get_model("access", "Grant").objects.using(alias).create(
        identity=identity, gives="admin", granted_by="migrate", granted_at=now
    )
    tokens.update(identity=identity)


class Migration(migrations.Migration):
    dependencies = [("access", "0002_identities_and_grants")]

    operations = [migrations.RunPython(adopt, migrations.RunPython.noop)]
