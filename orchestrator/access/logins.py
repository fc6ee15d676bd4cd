"""The brake on logins: whoever fails waits before the next attempt, each time twice as long.

Failures are counted for the name and for the address, so that neither many addresses nor many names
get around it. The count is in the database: it holds for all processes, and after a restart. An
attempt counts as failed from its beginning, so that many at once are not more than one by one.
"""

from __future__ import annotations

import ipaddress
import unicodedata
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest

from orchestrator.access.models import LoginRecord
from orchestrator.core import clock

log = structlog.get_logger(__name__)

FREE_FAILURES = 5
LONGEST_WAIT_SECONDS = 300
FORGET_AFTER = timedelta(hours=1)
"""Without a further failure."""

KNOWN_FOR = timedelta(days=30)
"""An address from which a name has logged in waits only for its own failures: otherwise a stranger
who fails again and again under that name would keep its owner out."""

Kind = LoginRecord.Kind


class Braked(PermissionDenied):
    """The attempt came before its time, and the password was not looked at."""


class BrakedBackend(ModelBackend):
    """Django's users and permissions, with the brake before a password is looked at.

    An unknown name takes as long as a wrong password: Django hashes for it, too. Without a request,
    nobody is at the door.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if request is None or username is None or password is None:
            return super().authenticate(request, username, password, **kwargs)
        address = address_of(request)
        wait_seconds = begin(username, address, now=clock.now())
        if wait_seconds:
            request.login_wait_seconds = wait_seconds  # type: ignore[attr-defined]
            facts = {"user": username[:150], "address": address, "wait_seconds": wait_seconds}
            log.warning("login refused before its time", **facts)
            raise Braked
        user = super().authenticate(request, username, password, **kwargs)
        if user is None:
            log.warning("login failed", user=username[:150], address=address)
        else:
            succeeded(username, address, now=clock.now())
            log.info("login", user=username[:150], address=address)
        return user


def begin(name: str, address: str, *, now: datetime) -> int:
    """Begin an attempt; returns the seconds that it has to wait, 0 if it may be made now.

    An attempt that may be made counts as a failure, until `succeeded`.
    """
    keys = _keys(name, address)
    with transaction.atomic():
        records = {record.kind: record for record in _locked(keys)}
        wait = max((record.free_at - now for record in records.values()), default=timedelta())
        if wait > timedelta():
            return int(wait.total_seconds()) + 1
        LoginRecord.objects.bulk_create(
            [_failed(kind, key, records.get(kind), now) for kind, key in keys],
            update_conflicts=True,
            unique_fields=["kind", "key"],
            update_fields=["failures", "last_at", "free_at"],
        )
        _forget(now)
    return 0


def succeeded(name: str, address: str, *, now: datetime) -> None:
    """Forget the failures of the name. The address gets back this attempt only: who has a login of
    his own could otherwise clear it between two guesses at another's."""
    with transaction.atomic():
        LoginRecord.objects.filter(kind=Kind.NAME, key=_name_key(name)).delete()
        for record in _locked([(Kind.ADDRESS, _address_key(address))]):
            record.failures -= 1
            record.free_at = now
            record.save(update_fields=["failures", "free_at"])
        LoginRecord.objects.update_or_create(
            kind=Kind.KNOWN, key=_pair_key(name, address), defaults={"last_at": now, "free_at": now}
        )


def wait_after(failures: int) -> timedelta:
    """The time before the next attempt: none for the first failures, then 1, 2, 4 ... seconds."""
    beyond = failures - FREE_FAILURES
    if beyond < 0:
        return timedelta()
    return timedelta(seconds=min(2 ** min(beyond, 20), LONGEST_WAIT_SECONDS))


def address_of(request: HttpRequest) -> str:
    """The caller's address, as the server sees it, or as a trusted proxy says."""
    return str(request.META.get("REMOTE_ADDR", "")) or "unknown"


def _keys(name: str, address: str) -> list[tuple[str, str]]:
    """The keys that an attempt is counted for, in the order in which rows are locked."""
    of_address = (Kind.ADDRESS, _address_key(address))
    is_known = LoginRecord.objects.filter(kind=Kind.KNOWN, key=_pair_key(name, address)).exists()
    return [of_address] if is_known else [of_address, (Kind.NAME, _name_key(name))]


def _locked(keys: Collection[tuple[str, str]]) -> list[LoginRecord]:
    asked = Q()
    for kind, key in keys:
        asked |= Q(kind=kind, key=key)
    return list(LoginRecord.objects.select_for_update().filter(asked).order_by("kind"))


def _failed(kind: str, key: str, record: LoginRecord | None, now: datetime) -> LoginRecord:
    is_old = record is None or record.last_at < now - FORGET_AFTER
    failures = 1 if record is None or is_old else record.failures + 1
    return LoginRecord(
        kind=kind, key=key, failures=failures, last_at=now, free_at=now + wait_after(failures)
    )


def _forget(now: datetime) -> None:
    old = Q(last_at__lt=now - FORGET_AFTER) & ~Q(kind=Kind.KNOWN)
    LoginRecord.objects.filter(old | Q(last_at__lt=now - KNOWN_FOR)).delete()


def _name_key(name: str) -> str:
    # PostgreSQL takes no NUL and no half of a surrogate pair
    text = name.replace("\0", "").encode("utf-8", "replace").decode()
    return unicodedata.normalize("NFKC", text).casefold()[:150]


def _address_key(address: str) -> str:
    """The address; of IPv6 the network of a customer, who has all the addresses in it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:50]
    if parsed.version == 6:
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _pair_key(name: str, address: str) -> str:
    return f"{_address_key(address)} {_name_key(name)}"
