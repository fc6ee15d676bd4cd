"""What `manage.py check`, and every command before it starts, says of a wrong configuration."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from orchestrator.core import health_checks

CONFIGURATION = "configuration"
"""The tag of these checks. Our commands run them and no others: Django's look at models, URLs and
the admin, which only a change of code can break, and load all of the API for it."""

SQLITE_NEEDED = (3, 35)
"""The first with RETURNING."""

LOOPBACK = {"localhost", "127.0.0.1", "[::1]", ".localhost"}


@register(CONFIGURATION)
def check_sqlite_version(**_: Any) -> Sequence[CheckMessage]:
    """The embedded database and broker need a SQLite that is new enough."""
    used = _uses_sqlite() or _uses_embedded_broker()
    if not used or sqlite3.sqlite_version_info >= SQLITE_NEEDED:
        return []
    needed = ".".join(map(str, SQLITE_NEEDED))
    return [
        Error(
            f"SQLite {sqlite3.sqlite_version} is too old: expected {needed} or newer.",
            hint="Use a newer Python, or set DATABASE_URL and BROKER_URL to real servers.",
            id="muster.E001",
        )
    ]


@register(CONFIGURATION)
def check_servers_match(**_: Any) -> Sequence[CheckMessage]:
    """Half of a real installation is most likely a variable that was forgotten."""
    if _uses_sqlite() and not _uses_embedded_broker():
        return [
            Warning(
                "BROKER_URL names a server, and the database is a SQLite file.",
                hint="Only processes of this host see the database. Set DATABASE_URL.",
                id="muster.W001",
            )
        ]
    if _uses_embedded_broker() and not _uses_sqlite():
        return [
            Warning(
                "DATABASE_URL names a server, and the broker is a SQLite file.",
                hint="Workers on other hosts get no messages. Set BROKER_URL.",
                id="muster.W002",
            )
        ]
    return []


@register(CONFIGURATION)
def check_debug_is_private(**_: Any) -> Sequence[CheckMessage]:
    """Pages of DEBUG show code and settings to whoever reaches them."""
    reachable = sorted(set(settings.ALLOWED_HOSTS) - LOOPBACK)
    if not settings.DEBUG or not reachable:
        return []
    return [
        Warning(
            f"DEBUG is on, and ALLOWED_HOSTS names more than this host: {', '.join(reachable)}.",
            hint="Unset DEBUG: its pages show code and settings.",
            id="muster.W003",
        )
    ]


@register(CONFIGURATION)
def check_data_dir(**_: Any) -> Sequence[CheckMessage]:
    """What runs embedded writes into the data directory."""
    if os.access(settings.DATA_DIR, os.W_OK | os.X_OK):
        return []
    return [
        Error(
            f"The data directory {settings.DATA_DIR} cannot be written by this user.",
            hint="Set MUSTER_DATA_DIR to a directory that can.",
            id="muster.E002",
        )
    ]


@register(CONFIGURATION)
def check_health_checks(**_: Any) -> Sequence[CheckMessage]:
    """A worker that cannot run its checks would never be fit for work."""
    try:
        health_checks.configured()
    except health_checks.WrongHealthCheck as error:
        return [Error(str(error), hint="See docs/operating.md, Health.", id="muster.E003")]
    return []


def _uses_sqlite() -> bool:
    return bool(settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3")


def _uses_embedded_broker() -> bool:
    return str(settings.BROKER_URL).startswith("sqlitemq:")
