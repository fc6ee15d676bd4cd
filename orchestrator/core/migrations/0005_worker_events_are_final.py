"""The history of a worker is final, too."""

from django.db import migrations

from orchestrator.core import finality


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0004_isolation")]

    operations = [finality.keep({}, histories=["orchestrator_workerevent"])]
