"""Checks of the configuration, for `manage.py check` and for every command before it starts."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from orchestrator.core import brokers, health_checks, private_files

CONFIGURATION = "configuration"
"""The tag of these checks. Our commands run only these: Django's own check models, URLs and the
admin, which only a change of code can break, and load the whole API for that."""

SQLITE_NEEDED = (3, 35)
"""The first version with RETURNING."""

LOOPBACK_HOSTS = {"localhost", "127.0.0.1", "::1"}
LOOPBACK = {"localhost", "127.0.0.1", "[::1]", ".localhost"}


@register(CONFIGURATION)
def check_sqlite_version(**_: Any) -> Sequence[CheckMessage]:
    """Check that SQLite is new enough for the embedded database and broker."""
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
    """Warn of a mixed installation: most likely, a variable was forgotten."""
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
    """Check that DEBUG is not on for other hosts: its pages show code and settings to everybody."""
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
    """Check that the data directory is writable: embedded services write there."""
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
def check_data_dir_is_private(**_: Any) -> Sequence[CheckMessage]:
    """Check that no other user may look into the data directory."""
    if not private_files.open_to_others(settings.DATA_DIR):
        return []
    return [
        Warning(
            f"Other users of this host may look into the data directory {settings.DATA_DIR}.",
            hint=f"chmod 700 {settings.DATA_DIR}, or set MUSTER_DATA_DIR to another directory.",
            id="muster.W004",
        )
    ]


@register(CONFIGURATION)
def check_health_checks(**_: Any) -> Sequence[CheckMessage]:
    """Check the health checks: a worker that cannot run them would never get work."""
    try:
        health_checks.configured()
    except health_checks.WrongHealthCheck as error:
        return [Error(str(error), hint="See docs/operating.md, Health.", id="muster.E003")]
    return []


@register(CONFIGURATION)
def check_broker_tls(**_: Any) -> Sequence[CheckMessage]:
    """Check the files of the TLS settings: with wrong ones, no connection is made."""
    if not settings.BROKER_TLS.keys() & brokers.TLS_FILES.keys():
        return []
    if not any(map(brokers.tls, brokers.aliases())):
        return [
            Warning(
                "MUSTER_BROKER_CA, MUSTER_BROKER_CERT and MUSTER_BROKER_KEY count for nothing.",
                hint="No broker has amqps:// in its URL: set BROKER_URL, MUSTER_GATE_BROKERS.",
                id="muster.W008",
            )
        ]
    unusable = list(brokers.file_problems())
    expired = list(brokers.expired_files(datetime.now(UTC)))
    hint = "See docs/operating.md, TLS to the servers."
    return [
        *(Error(problem, hint=hint, id="muster.E004") for problem in unusable),
        *(Warning(problem, hint=hint, id="muster.W007") for problem in expired),
    ]


@register(Tags.security, deploy=True)
def check_servers_are_verified(**_: Any) -> Sequence[CheckMessage]:
    """Check that connections to other hosts are encrypted, and compare the server's name."""
    return [
        Warning(
            f"{variable}: the connection to {host} is not verified by TLS.",
            hint=f"{expected}; see docs/operating.md, TLS.",
            id="muster.W005",
        )
        for variable, host, is_verified, expected in _servers()
        if not is_verified and host and not host.startswith("/") and host not in LOOPBACK_HOSTS
    ]


def _servers() -> Iterator[tuple[str, str, bool, str]]:
    """The servers: their variable, host, whether they are verified, and how they would be."""
    database = settings.DATABASES["default"]
    mode = database.get("OPTIONS", {}).get("sslmode")
    host = "" if _uses_sqlite() else str(database["HOST"])
    yield "DATABASE_URL", host, mode == "verify-full", "Add ?sslmode=verify-full&sslrootcert=FILE"
    urls = [("BROKER_URL", brokers.url()), ("REDIS_URL", str(settings.REDIS_URL))]
    urls += [
        (f"MUSTER_GATE_BROKERS, {alias}", each) for alias, each in settings.GATE_BROKERS.items()
    ]
    for variable, text in urls:
        scheme = "rediss" if variable == "REDIS_URL" else "amqps"
        url = urlsplit(text.split(";")[0])
        is_verified = url.scheme == scheme and "cert_reqs=none" not in url.query
        yield variable, url.hostname or "", is_verified, f"Use {scheme}://"


def _uses_sqlite() -> bool:
    return bool(settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3")


def _uses_embedded_broker() -> bool:
    return str(settings.BROKER_URL).startswith("sqlitemq:")
