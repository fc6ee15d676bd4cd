"""The Django application."""

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    name = "orchestrator"
    verbose_name = "Muster"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from orchestrator import checks  # noqa: F401 - registers them
