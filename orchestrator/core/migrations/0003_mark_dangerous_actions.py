"""Our own packs' dangerous actions are marked at once, not when the packs are installed again."""

from django.db import migrations

REFS = ("core.sha256", "core.shell", "drill.wait", "drill.wait_once")


def mark(apps, schema_editor):
    actions = apps.get_model("orchestrator", "Action").objects
    actions.using(schema_editor.connection.alias).filter(ref__in=REFS).update(dangerous=True)


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0002_key_owner_and_dangerous")]

    operations = [migrations.RunPython(mark, migrations.RunPython.noop)]
