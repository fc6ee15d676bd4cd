"""Settings of an installation: Django, Celery, the environment (read only here)."""

from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES["sqlitemq"] = "orchestrator.sqlitemq:Transport"
