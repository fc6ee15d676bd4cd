"""What happened to a worker is history, too."""

from django.db import migrations

from orchestrator.core import finality


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0004_isolation")]

    operations = [finality.keep({}, histories=["orchestrator_workerevent"])]
