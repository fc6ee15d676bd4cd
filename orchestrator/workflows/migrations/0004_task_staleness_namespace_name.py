"""The view calls the namespace as templates do. Views are made after migrations: this is the state
of its model only."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("workflows", "0003_step_completion_metadata")]

    operations = [
        migrations.RenameField("taskstaleness", "namespace", "namespace_name"),
    ]
