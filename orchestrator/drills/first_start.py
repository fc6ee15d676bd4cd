"""Preparation of an installation before its services start: tables, the core pack, logins."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import Error as DatabaseError
from django.db import connection

from orchestrator.access import identities, tokens
from orchestrator.access.grants import EVERYTHING
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core import authority, brokers, packs, private_files
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Pack

ADMIN = "admin"
SERVICE = "up"
"""The service account whose token `up` makes: an admin."""
TOKEN_LIFETIME = timedelta(hours=24)
TOKEN_RENEWED_BEFORE = timedelta(hours=12)
"""With less than this left, the token is replaced."""


@dataclass(frozen=True)
class Secret:
    """A secret that was created for the first start, and the file that keeps it."""

    text: str
    path: Path


def check_servers() -> None:
    """Check database and broker. Raises CommandError that names the server, its address, and what
    to do."""
    database = settings.DATABASES["default"]
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        raise CommandError(
            f"The database does not answer (DATABASE_URL: {database['NAME']} at "
            f"{database.get('HOST') or 'this machine'}): {_one_line(error)}\n"
            "Start it, or unset DATABASE_URL to run on the embedded one."
        ) from None
    link = brokers.connection()
    try:
        link.ensure_connection(max_retries=1, interval_start=0, timeout=3)
    except brokers.errors() as error:
        raise CommandError(
            f"The broker does not answer (BROKER_URL): {brokers.explain(error)}\n"
            "Start it, or unset BROKER_URL to run on the embedded one."
        ) from None
    finally:
        link.release()


def prepare(*, now: datetime) -> None:
    """Bring the tables up to date; install the core pack if it is missing. Files that an older
    version left open to others are closed."""
    private_files.close_to_others(settings.DATA_DIR)
    call_command("migrate", interactive=False, verbosity=0)
    if not Pack.objects.filter(name="core").exists():
        packs.install(packs.load(settings.BASE_DIR / "packs" / "core"), now=now)


def make_admin() -> Secret | None:
    """Create the first administrator; None if there is one."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(username=ADMIN, password=password)
    return _kept("admin_password", password)


def make_token(*, now: datetime) -> Secret | None:
    """Make an API token for this machine and for a day, which may do everything; None if the stored
    one will do. The one before is accepted for another hour."""
    path = settings.DATA_DIR / "api_token"
    stored = tokens.of_text(path.read_text().strip()) if path.exists() else None
    if stored is not None and _will_do(stored, now):
        return None
    try:
        return _kept(path.name, _new_token(now))
    except MusterError as error:
        raise CommandError(f"No API token was made: {error}") from None


def _will_do(token: ApiToken, now: datetime) -> bool:
    is_ours = token.identity.service_name == SERVICE and not token.identity.is_disabled
    is_usable = is_ours and tokens.state(token, now=now) == "usable"
    return (
        is_usable
        and token.expires_at is not None
        and (token.expires_at - now > TOKEN_RENEWED_BEFORE)
    )


def _new_token(now: datetime) -> str:
    by = authority.at_terminal()
    owner = Identity.objects.services().filter(service_name=SERVICE).first()
    if owner is None:
        owner = identities.create_service(
            SERVICE, description="Makes the token of `manage.py up`.", now=now
        )
        identities.grant(owner, EVERYTHING[0], by=by, now=now)
    for token in owner.tokens.filter(superseded_at=None).select_related("identity__user"):
        if tokens.state(token, now=now) == "usable":
            return tokens.rotate(token, by=by, now=now)[1]
    name = SERVICE
    for number in range(2, 1_000):
        try:
            return tokens.create(
                name=name,
                owner=owner,
                by=by,
                now=now,
                lifetime=TOKEN_LIFETIME,
                networks=tokens.LOOPBACK,
            )[1]
        except tokens.NameTaken:
            name = f"{SERVICE}-{number}"
    raise CommandError(f"No name is left for a token; revoke those called {SERVICE}-...")


def _kept(name: str, text: str) -> Secret:
    """Write a secret to the data directory, readable only by its owner."""
    path: Path = settings.DATA_DIR / name
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_files.FILE)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
    return Secret(text, path)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or repr(error)
