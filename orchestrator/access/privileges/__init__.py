"""The logins of each service at PostgreSQL and RabbitMQ, with the rights that it needs and no more.

An installation that sets up none of this runs with one login for all, as the embedded one does.
"""

from __future__ import annotations

from django.conf import settings

SERVICES = ("api", "executor", "beat", "worker", "notifier")
WORKER = "worker"


def login(service: str) -> str:
    """The role at PostgreSQL, and the user at RabbitMQ, of a service of this installation."""
    return f"{settings.MUSTER.namespace}_{service}"
