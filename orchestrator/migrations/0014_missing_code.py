"""What a worker's host lacks of the code of packs, and when it was found to."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0013_letters_are_counted")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="missing_code",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="Each pack, or single action of one, whose code its host lacks, and why.",
            ),
        ),
        migrations.AlterField(
            model_name="workerevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("registered", "Registered"),
                    ("left", "Left"),
                    ("lost", "Lost"),
                    ("unhealthy", "Unhealthy"),
                    ("healthy", "Healthy"),
                    ("lacks_code", "Lacks Code"),
                    ("has_code", "Has Code"),
                    ("cordoned", "Cordoned"),
                    ("uncordoned", "Uncordoned"),
                    ("draining", "Draining"),
                    ("retired", "Retired"),
                ],
                max_length=12,
            ),
        ),
    ]
