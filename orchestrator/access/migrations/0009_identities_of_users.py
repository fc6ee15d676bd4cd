"""Every user has an identity, also those who were granted nothing."""

from django.conf import settings
from django.db import migrations


def make(apps, schema_editor):
    alias = schema_editor.connection.alias
    identities = apps.get_model("access", "Identity").objects.using(alias)
    users = apps.get_model(settings.AUTH_USER_MODEL).objects.using(alias)
    known = identities.filter(user__isnull=False).values("user_id")
    for user in users.exclude(pk__in=known).order_by("pk"):
        identities.create(user=user, created_at=user.date_joined)


class Migration(migrations.Migration):
    dependencies = [
        ("access", "0008_execution_tokens"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [migrations.RunPython(make, migrations.RunPython.noop)]
