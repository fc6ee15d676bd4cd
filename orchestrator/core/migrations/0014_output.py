"""The newest output of running executions."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0013_releases")]

    operations = [
        migrations.CreateModel(
            name="OutputChunk",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("execution_id", models.UUIDField()),
                ("attempt", models.PositiveIntegerField()),
                (
                    "stream",
                    models.CharField(
                        choices=[("stdout", "stdout"), ("stderr", "stderr")], max_length=6
                    ),
                ),
                ("offset", models.BigIntegerField()),
                ("content", models.BinaryField()),
                ("written_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("execution_id", "attempt", "stream", "offset"),
                        name="output_chunk_is_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("stream__in", ("stdout", "stderr"))),
                        name="output_chunk_stream_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("offset__gte", 0)),
                        name="output_chunk_offset_is_no_less_than_0",
                    ),
                ],
            },
        ),
    ]
