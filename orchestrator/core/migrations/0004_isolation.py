"""The isolation that an action asks for, and that a worker gives."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0003_mark_dangerous_actions")]

    operations = [
        migrations.AddField(
            model_name="action",
            name="isolation",
            field=models.CharField(
                choices=[
                    ("trusted", "trusted"),
                    ("process", "process"),
                    ("user", "user"),
                    ("container", "container"),
                ],
                default="process",
                help_text="What its code is kept away from, at least.",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="isolation",
            field=models.CharField(
                default="process",
                help_text="The isolation that it gives to the processes of actions.",
                max_length=10,
            ),
        ),
    ]
