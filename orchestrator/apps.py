"""The Django application."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class OrchestratorConfig(AppConfig):
    name = "orchestrator"
    verbose_name = "Muster"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from orchestrator import checks  # noqa: F401 - registers them
        from orchestrator.models import view_definitions

        pre_migrate.connect(view_definitions.drop, sender=self)
        post_migrate.connect(view_definitions.make, sender=self)
