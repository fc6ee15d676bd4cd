"""Tasks that ended long ago may be removed."""

from django.db import migrations

from orchestrator.core import finality

STATES = ["complete", "cancelled", "resolved_manually"]


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0008_pruning"),
        ("workflows", "0004_task_staleness_namespace_name"),
    ]

    operations = [
        finality.let_old_rows_go(
            dict.fromkeys(("workflows_task", "workflows_step"), ("state", STATES)),
            histories=["workflows_transitionrecord"],
        )
    ]
