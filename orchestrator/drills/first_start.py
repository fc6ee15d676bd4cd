"""What an installation needs before its services start: tables, the core pack, a way in."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import Error as DatabaseError
from django.db import connection

from orchestrator.access import tokens
from orchestrator.core import packs, publisher
from orchestrator.core.models import Pack

ADMIN = "admin"
TOKEN_NAME = "up"  # noqa: S105 - a name, not a secret


@dataclass(frozen=True)
class Secret:
    """What was made for the first start, and the file that keeps it."""

    text: str
    path: Path


def check_servers() -> None:
    """Raises CommandError that names the server, where it should be, and what to do."""
    database = settings.DATABASES["default"]
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        raise CommandError(
            f"The database does not answer (DATABASE_URL: {database['NAME']} at "
            f"{database.get('HOST') or 'this machine'}): {_one_line(error)}\n"
            "Start it, or unset DATABASE_URL to run on the embedded one."
        ) from None
    link = publisher.connection()
    try:
        link.ensure_connection(max_retries=1, interval_start=0, timeout=3)
    except publisher.errors() as error:
        raise CommandError(
            f"The broker does not answer (BROKER_URL: {link.as_uri()}): {_one_line(error)}\n"
            "Start it, or unset BROKER_URL to run on the embedded one."
        ) from None
    finally:
        link.release()


def prepare(*, now: datetime) -> None:
    """Bring the tables up to date; install the core pack where it is missing."""
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
    """Create an API token; None if the one that is kept is usable still."""
    path = settings.DATA_DIR / "api_token"
    if path.exists() and tokens.authenticate(path.read_text().strip(), now=now):
        return None
    name = TOKEN_NAME
    for number in range(2, 1_000):
        try:
            _, text = tokens.create(name=name, now=now)
        except tokens.NameTaken:
            name = f"{TOKEN_NAME}-{number}"
        else:
            return _kept(path.name, text)
    raise CommandError(f"No name is left for a token; remove those called {TOKEN_NAME}-...")


def _kept(name: str, text: str) -> Secret:
    """Written to the data directory, for its owner's eyes only."""
    path: Path = settings.DATA_DIR / name
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
    return Secret(text, path)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or repr(error)
