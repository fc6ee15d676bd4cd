"""The places where the traces of executions began."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0009_history_mark")]

    operations = [
        migrations.CreateModel(
            name="TraceContext",
            fields=[
                ("execution_id", models.UUIDField(primary_key=True, serialize=False)),
                ("traceparent", models.CharField(max_length=55)),
                ("tracestate", models.CharField(blank=True, max_length=512)),
            ],
        ),
    ]
