"""What the rows of the queue are called."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0010_task_not_begun")]

    operations = [
        migrations.AlterModelOptions(
            "investigationqueue",
            options={
                "managed": False,
                "ordering": ["-priority_score"],
                "verbose_name": "investigation",
            },
        ),
    ]
