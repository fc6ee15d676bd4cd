"""Tickets: a browser cannot send a header with a stream, and a token in a URL would be logged.

A ticket's text is in the URL instead. It is good once, for 30 s. The token that it stands for is
sealed with that text, so that the table tells nobody a token, and whoever takes the ticket can ask
again and again whether the token is still good.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from datetime import datetime, timedelta

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import transaction

from orchestrator.notifications.models import StreamTicket

PREFIX = "mtk_"
LIFETIME = timedelta(seconds=30)
NONCE_BYTES = 12


def make(*, authorization: str, now: datetime) -> tuple[str, datetime]:
    """Make a ticket for who sent this header; returns its text and until when it is good."""
    text = PREFIX + secrets.token_urlsafe(32)
    nonce = os.urandom(NONCE_BYTES)
    sealed = nonce + AESGCM(_key(text)).encrypt(nonce, authorization.encode(), None)
    expires_at = now + LIFETIME
    StreamTicket.objects.filter(expires_at__lte=now).delete()
    StreamTicket.objects.create(digest=_digest(text), sealed=sealed, expires_at=expires_at)
    return text, expires_at


def take(text: str, *, now: datetime) -> str | None:
    """Use up a ticket; returns its header, or None if it is unknown, used or too old."""
    with transaction.atomic():
        rows = StreamTicket.objects.select_for_update().filter(digest=_digest(text))
        ticket = rows.first()
        if ticket is None:
            return None
        ticket.delete()
    if ticket.expires_at <= now:
        return None
    sealed = bytes(ticket.sealed)
    try:
        opened = AESGCM(_key(text)).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
    except InvalidTag:
        return None
    return opened.decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _key(text: str) -> bytes:
    """Not the digest, which is stored."""
    return hashlib.sha256(b"muster stream ticket\0" + text.encode()).digest()
