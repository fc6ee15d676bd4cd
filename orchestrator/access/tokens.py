"""API tokens: make, recognise, revoke."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Q

from orchestrator.access.models import ApiToken
from orchestrator.core import words
from orchestrator.core.database import LOCK_NOT_AVAILABLE, READ_ONLY, sqlstate
from orchestrator.core.errors import MusterError

KINDS = words.kinds(success="usable", warning="expired", danger="revoked")
PREFIX = "mst_"
SECRET_BYTES = 32
TEXT_LENGTH = len(PREFIX) + 43
"""43 characters of base64 hold the 256 random bits."""

USE_NOTED_EVERY = timedelta(minutes=1)
"""`last_used_at` is this exact: a write for each request would cost more than the request."""


class NameTaken(MusterError):
    """Another token, perhaps a revoked one, has this name."""


class InvalidName(MusterError):
    """A token's name has 1 to 100 printable characters: it is the actor in every history."""


def create(*, name: str, now: datetime, expires_at: datetime | None = None) -> tuple[ApiToken, str]:
    """Make a token; returns its row and its text, which exists nowhere else and only now.

    Raises InvalidName and NameTaken.
    """
    limit = ApiToken._meta.get_field("name").max_length or 0
    if not (0 < len(name) <= limit and name.isprintable() and name == name.strip()):
        raise InvalidName
    text = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    try:
        with transaction.atomic():
            token = ApiToken.objects.create(
                name=name,
                prefix=text[: len(PREFIX) + 8],
                digest=_digest(text),
                created_at=now,
                expires_at=expires_at,
            )
    except IntegrityError:
        raise NameTaken(f"A token is called {name!r} already, perhaps a revoked one") from None
    return token, text


def authenticate(text: str, *, now: datetime) -> ApiToken | None:
    """The usable token of this text, or None if it is unknown, revoked or expired.

    Found by the digest: what a lookup's time tells of an index says nothing of the text.
    """
    if len(text) != TEXT_LENGTH or not text.startswith(PREFIX):
        return None
    # whether it is usable is asked of the row: every request comes this way, and three more
    # conditions cost as much again as the lookup
    for token in ApiToken.objects.filter(digest=_digest(text)):
        if state(token, now=now) == "usable":
            _note_use(token, now)
            return token
    return None


def state(token: ApiToken, *, now: datetime) -> str:
    """`usable`, `expired` or `revoked`."""
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "usable"


def revoke(token: ApiToken, *, now: datetime) -> None:
    """Refuse this token from now on. A token that is revoked keeps the time of its first end."""
    ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now)


def _note_use(token: ApiToken, now: datetime) -> None:
    before = now - USE_NOTED_EVERY
    if token.last_used_at is None or token.last_used_at <= before:
        unnoted = Q(last_used_at__isnull=True) | Q(last_used_at__lte=before)
        try:
            ApiToken.objects.filter(unnoted, pk=token.pk).update(last_used_at=now)
        except DatabaseError as error:
            # who only reads is served all the same
            if sqlstate(error) not in (READ_ONLY, LOCK_NOT_AVAILABLE):
                raise


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
