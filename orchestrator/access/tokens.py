"""API tokens: create, authenticate, rotate, revoke."""

from __future__ import annotations

import binascii
import hashlib
import ipaddress
import json
import secrets
import string
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Q

from orchestrator.access import audit, grants, identities
from orchestrator.access.authorizer import Identified
from orchestrator.access.grants import EVERYTHING, Given
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.database import LOCK_NOT_AVAILABLE, READ_ONLY, sqlstate
from orchestrator.core.errors import Conflict, MusterError
from orchestrator.core.statements import Statement

KINDS = words.kinds(success="usable", warning="expired rotated", danger="revoked")
PREFIX = "mst_"
SECRET_BYTES = 32
OLD_TEXT_LENGTH = len(PREFIX) + 43
"""43 characters of base64 hold the 256 random bits. Earlier texts have no more than this."""
CHECKSUM_LENGTH = 6
TEXT_LENGTH = OLD_TEXT_LENGTH + CHECKSUM_LENGTH
DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase

LIFETIME = timedelta(days=90)
LONGEST_LIFETIME = timedelta(days=366)
LONGEST_OVERLAP = timedelta(days=30)
MOST_NETWORKS = 20
LOOPBACK = ("127.0.0.0/8", "::1/128")

USE_NOTED_EVERY = timedelta(minutes=1)
"""The precision of `last_used_at`: a write for each request would cost more than the request."""


class NameTaken(Conflict):
    """A token that is in use has this name."""

    kind = "name-taken"


class InvalidName(MusterError):
    """A token's name has 1 to 100 printable characters: it is the actor in every history."""


class InvalidToken(MusterError):
    """The token cannot be made like this."""


class NotInUse(Conflict):
    """The token is revoked, expired or rotated already."""

    kind = "not-in-use"


# --- making and ending ---------------------------------------------------------------------------


def create(
    *,
    name: str,
    owner: Identity,
    by: Principal,
    now: datetime,
    lifetime: timedelta = LIFETIME,
    only: Sequence[Given] | None = None,
    networks: Sequence[str] = (),
) -> tuple[ApiToken, str]:
    """Create a token; returns its row and its text, which is not stored anywhere.

    It may do what its owner may at the time of each request; `only` narrows that. Nobody makes a
    token that may do more than themselves. Raises InvalidName, InvalidToken, NameTaken and
    PermissionMissing.
    """
    if not identities.is_name(name):
        raise InvalidName
    if not timedelta() < lifetime <= LONGEST_LIFETIME:
        raise InvalidToken(f"A token lives for at most {LONGEST_LIFETIME.days} days")
    held = _held(owner)
    _refuse_more_than(held, only or (), owner)
    identities.require_cover(only if only is not None else held, by=by, what="A token with")
    limits = "all that its owner may" if only is None else "; ".join(map(str, only))
    with transaction.atomic():
        _tell("tokens.create", name, f"of {owner}: {limits}", by, now)
        return _insert(
            ApiToken(
                name=name,
                identity=owner,
                grants=None if only is None else [given.as_json() for given in only],
                networks=_networks(networks),
                created_at=now,
                created_by=by.actor,
                expires_at=now + lifetime,
            )
        )


def rotate(
    token: ApiToken, *, by: Principal, now: datetime, overlap: timedelta = timedelta(hours=1)
) -> tuple[ApiToken, str]:
    """Give the token another text; returns the new row and the text. The old text is accepted until
    the overlap is over, or until the token would have expired.

    The new one lives as long as the old one would have from its creation. Raises NotInUse,
    InvalidToken and PermissionMissing.
    """
    if not timedelta() <= overlap <= LONGEST_OVERLAP:
        raise InvalidToken(f"The overlap is at most {LONGEST_OVERLAP.days} days")
    held = _held(token.identity)
    wanted = held if token.grants is None else tuple(map(grants.of_json, token.grants))
    identities.require_cover(wanted, by=by, what="A token with")
    lifetime = LIFETIME if token.expires_at is None else token.expires_at - token.created_at
    end = now + overlap
    with transaction.atomic():
        moved = ApiToken.objects.filter(
            Q(expires_at=None) | Q(expires_at__gt=now), pk=token.pk, revoked_at=None,
            superseded_at=None,
        ).update(
            superseded_at=now,
            expires_at=end if token.expires_at is None else min(token.expires_at, end),
        )  # fmt: skip
        if not moved:
            token.refresh_from_db()  # another request may have rotated it since it was read
            raise NotInUse(f"The token {token.name} is {state(token, now=now)}")
        # at most two texts at a time
        earlier = ApiToken.objects.filter(name=token.name, revoked_at=None, pk__lt=token.pk)
        earlier.update(revoked_at=now)
        _tell("tokens.rotate", token.name, f"the old text until {end:%Y-%m-%d %H:%M}", by, now)
        return _insert(
            ApiToken(
                name=token.name,
                identity=token.identity,
                grants=token.grants,
                networks=token.networks,
                created_at=now,
                created_by=by.actor,
                expires_at=now + lifetime,
            )
        )


def revoke(token: ApiToken, *, by: Principal, now: datetime) -> int:
    """Refuse all its owner's texts of its name from now on; returns how many there were. The name
    is free."""
    # its name was free once it had expired, and may be another owner's
    texts = ApiToken.objects.filter(name=token.name, identity=token.identity_id, revoked_at=None)
    with transaction.atomic():
        number = texts.update(revoked_at=now)
        if number:
            _tell("tokens.revoke", token.name, "", by, now)
    return number


def _tell(what: str, name: str, reason: str, by: Principal, now: datetime) -> None:
    actor = audit.of_principal(by)
    audit.record(what, actor=actor, object_kind="token", object_id=name, reason=reason, now=now)


def of_text(text: str) -> ApiToken | None:
    """The token of this text, usable or not."""
    rows = ApiToken.objects.select_related("identity__user")
    return rows.filter(digest=_digest(text)).first() if _may_be_text(text) else None


def state(token: ApiToken, *, now: datetime) -> str:
    """`usable`, `rotated` while the overlap lasts, `expired` or `revoked`."""
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    return "usable" if token.superseded_at is None else "rotated"


def _held(owner: Identity) -> tuple[Given, ...]:
    """The rights of the owner of a new text. Raises InvalidToken."""
    if owner.is_disabled:
        raise InvalidToken(f"{owner} is disabled")
    return identities.given_to(owner)


def _refuse_more_than(held: Sequence[Given], only: Sequence[Given], owner: Identity) -> None:
    layers = (tuple(held),)
    for given in only:
        lacking = [
            name
            for name in sorted(grants.permissions_of(given.gives))
            if not grants.reach_of(layers, name)
        ]
        if lacking:
            raise InvalidToken(
                f"{owner} has no {lacking[0]}, which {given.gives} gives: a token has at most what "
                f"its owner has; first: manage.py access grant {owner} {given.gives}"
            )


def _networks(texts: Sequence[str]) -> list[str]:
    if len(texts) > MOST_NETWORKS:
        raise InvalidToken(f"Expected at most {MOST_NETWORKS} networks, found {len(texts)}")
    try:
        return [str(ipaddress.ip_network(text)) for text in texts]
    except ValueError as error:
        raise InvalidToken(f"{error}; expected a network such as 10.1.0.0/16") from None


def _insert(token: ApiToken) -> tuple[ApiToken, str]:
    text = _new_text()
    token.prefix, token.digest = text[: len(PREFIX) + 8], _digest(text)
    with transaction.atomic():
        # the name of one that has expired is free, as that of a revoked one is
        ApiToken.objects.filter(
            name=token.name, revoked_at=None, superseded_at=None, expires_at__lte=token.created_at
        ).update(revoked_at=token.created_at)
        try:
            with transaction.atomic():
                token.save(force_insert=True)
        except IntegrityError:
            raise NameTaken(f"A token in use is called {token.name!r} already") from None
    return token, text


# --- texts ---------------------------------------------------------------------------------------


def _new_text() -> str:
    text = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    return text + checksum(text)


def checksum(text: str) -> str:
    """The CRC-32 of a text in six digits of base 62: scanners for secrets know a real token by it,
    and a mistyped one costs no query."""
    number, digits = binascii.crc32(text.encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(DIGITS))
        digits = DIGITS[digit] + digits
    return digits


def _may_be_text(text: str) -> bool:
    if not text.startswith(PREFIX):
        return False
    if len(text) == TEXT_LENGTH:
        return text[OLD_TEXT_LENGTH:] == checksum(text[:OLD_TEXT_LENGTH])
    return len(text) == OLD_TEXT_LENGTH


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- authentication ------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A token, its owner, and one of the owner's grants."""

    id: int
    name: str
    prefix: str
    grants: str | None
    networks: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    identity_id: int
    service_name: str
    is_legacy: bool
    disabled_at: datetime | None
    username: str | None
    is_active: bool | None
    is_superuser: bool | None
    gives: str | None
    scope: str | None


_BY_DIGEST = Statement("""
    SELECT token.id, token.name, token.prefix, token.grants, token.networks, token.expires_at,
        token.revoked_at, token.last_used_at, token.identity_id, identity.service_name,
        identity.is_legacy, identity.disabled_at, person.username, person.is_active,
        person.is_superuser, given.gives, given.scope
    FROM access_apitoken AS token
    JOIN access_identity AS identity ON identity.id = token.identity_id
    LEFT JOIN auth_user AS person ON person.id = identity.user_id
    LEFT JOIN access_grant AS given ON given.identity_id = identity.id
    WHERE token.digest = %(digest)s
""")
"""A token with its owner and the owner's grants, a row for each: every request asks for this, and
composing it took longer than running it."""


def authenticate(text: str, *, now: datetime, address: str = "") -> Identified | None:
    """Return who the usable token of this text belongs to; None if it is unknown, revoked, expired,
    of a disabled owner, or not for this address.

    Looks up the digest, so that the time of the lookup reveals nothing about the text.
    """
    if not _may_be_text(text):
        return None
    rows = [_Row(*row) for row in _BY_DIGEST.execute({"digest": _digest(text)})]
    if not rows or not _is_usable(rows[0], now, address):
        return None
    _note_use(rows[0], now)
    return _identified(rows)


def _is_usable(row: _Row, now: datetime, address: str) -> bool:
    # in Python: every request comes this way, and more conditions would double the lookup's cost
    if row.revoked_at is not None or row.disabled_at is not None:
        return False
    if row.username is not None and not row.is_active:
        return False
    expires_at = _moment(row.expires_at)
    if expires_at is not None and expires_at <= now:
        return False
    return row.networks == "[]" or _is_within(row.networks, address)


def _identified(rows: Sequence[_Row]) -> Identified:
    first = rows[0]
    owned = tuple(grants.read(row.gives, row.scope) for row in rows if row.gives and row.scope)
    if first.is_superuser:
        owned = (*EVERYTHING, *owned)
    layers = (owned,) if first.grants is None else (owned, grants.read_all(first.grants))
    kind, name = "user", first.username
    if name is None:
        kind, name = "service", first.service_name
    return Identified(
        actor=first.name if first.is_legacy or name == first.name else f"{name}/{first.name}"[:150],
        key_owner=0 if first.is_legacy else first.identity_id,
        layers=layers,
        identity=f"{kind}:{name}",
        identity_id=first.identity_id,
        token_prefix=first.prefix,
    )


def _is_within(networks: str, address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return any(ip in network for network in _read_networks(networks))


@lru_cache(maxsize=4096)
def _read_networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(map(ipaddress.ip_network, json.loads(text)))


def _moment(at: datetime | None) -> datetime | None:
    """A time as the cursor gives it: SQLite's has no zone, and is in UTC."""
    return at if at is None or at.tzinfo else at.replace(tzinfo=UTC)


def _note_use(row: _Row, now: datetime) -> None:
    before, last = now - USE_NOTED_EVERY, _moment(row.last_used_at)
    if last is None or last <= before:
        unnoted = Q(last_used_at__isnull=True) | Q(last_used_at__lte=before)
        try:
            ApiToken.objects.filter(unnoted, pk=row.id).update(last_used_at=now)
        except DatabaseError as error:
            # requests that only read are still served
            if sqlstate(error) not in (READ_ONLY, LOCK_NOT_AVAILABLE):
                raise
