"""Identities: people and service accounts, and what they are granted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models.signals import post_save

from orchestrator.access import audit, grants
from orchestrator.access.grants import EVERYTHING, Given
from orchestrator.access.models import Grant, Identity
from orchestrator.core import authority, words
from orchestrator.core.authority import PermissionMissing, Principal
from orchestrator.core.errors import Conflict, MusterError, NotFound

KINDS = words.kinds(success="enabled", danger="disabled")
LONGEST_NAME = 100


class UnknownIdentity(NotFound):
    """No person and no service account has this name."""


class InvalidName(MusterError):
    """A name has 1 to 100 printable characters and no colon: it is the actor in every history."""


class IdentityTaken(Conflict):
    """A service account of this name exists."""

    kind = "identity-taken"


class IdentityIsDisabled(MusterError):
    """The identity is disabled."""


class AmbiguousIdentity(MusterError):
    """A person and a service account have this name."""


class AlreadyGranted(Conflict):
    """The identity has this grant."""

    kind = "already-granted"


class LastAdmin(Conflict):
    """Nobody would be left who may manage access; first make somebody else an admin."""

    kind = "last-admin"


class UnknownGrant(NotFound):
    """The identity has no such grant."""


def listen() -> None:
    """Make the identity of each user together with the user, so that all lists are complete."""
    post_save.connect(_user_saved, sender=get_user_model())


def _user_saved(instance: Any, created: bool, raw: bool, **_: Any) -> None:
    if created and not raw:
        _of(instance, now=instance.date_joined)


def is_name(text: str) -> bool:
    """Return True if every history can show it as an actor."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()


def create_service(
    name: str, *, now: datetime, description: str = "", is_legacy: bool = False
) -> Identity:
    """Create a service account, which may do nothing yet. Raises InvalidName and IdentityTaken."""
    if not is_name(name) or ":" in name:
        raise InvalidName
    try:
        with transaction.atomic():
            _tell("identities.create", f"service:{name}", description)
            return Identity.objects.create(
                service_name=name, description=description, is_legacy=is_legacy, created_at=now
            )
    except IntegrityError:
        raise IdentityTaken(f"A service account is called {name!r} already") from None


def of_user(username: str, *, now: datetime) -> Identity:
    """The identity of a user of the admin, made if it is missing. Raises UnknownIdentity."""
    user = get_user_model().objects.filter(username=username).first()
    if user is None:
        raise UnknownIdentity(f"No user is called {username!r}")
    return _of(user, now=now)


def _of(user: Any, *, now: datetime) -> Identity:
    return Identity.objects.get_or_create(user=user, defaults={"created_at": now})[0]


def find(text: str, *, now: datetime | None = None) -> Identity:
    """The identity that is called `service:NAME`, `user:NAME`, or only NAME.

    With `now`, that of a user is made if there is none yet. Raises UnknownIdentity and
    AmbiguousIdentity.
    """
    kind, colon, rest = text.partition(":")
    name = rest if colon and kind in ("user", "service") else text
    found: list[Identity] = []
    if kind != "user" or not colon:
        found += Identity.objects.services().filter(service_name=name)
    if kind != "service" or not colon:
        found += _of_users(name, now)
    if len(found) > 1:
        raise AmbiguousIdentity(f"Say which: {' or '.join(map(str, found))}")
    if not found:
        raise UnknownIdentity(
            f"No user and no service account is called {name!r}; see: manage.py access list"
        )
    return found[0]


def _of_users(name: str, now: datetime | None) -> Sequence[Identity]:
    if now is not None and get_user_model().objects.filter(username=name).exists():
        return [of_user(name, now=now)]
    return list(Identity.objects.filter(user__username=name).select_related("user"))


def disable(identity: Identity, *, by: Principal, now: datetime) -> None:
    """Refuse everything in its name from now on: its tokens, and a person's sessions. Raises
    LastAdmin."""
    with _an_admin_stays():
        if identity.user is None:
            Identity.objects.filter(pk=identity.pk, disabled_at=None).update(disabled_at=now)
        else:
            get_user_model().objects.filter(pk=identity.user.pk).update(is_active=False)
        _tell("identities.disable", identity)


def enable(identity: Identity, *, by: Principal) -> None:
    """Accept it again, and its tokens that are neither revoked nor expired. Raises
    PermissionMissing if it may do more than `by`."""
    require_cover(given_to(identity), by=by, what="Enabling")
    with transaction.atomic():
        if identity.user is None:
            Identity.objects.filter(pk=identity.pk).update(disabled_at=None)
        else:
            get_user_model().objects.filter(pk=identity.user.pk).update(is_active=True)
        _tell("identities.enable", identity)


def state(identity: Identity) -> str:
    """`enabled` or `disabled`."""
    return "disabled" if identity.is_disabled else "enabled"


# --- grants --------------------------------------------------------------------------------------


def given_to(identity: Identity) -> tuple[Given, ...]:
    """The rights that an identity has now; a superuser is an admin without a grant."""
    given = tuple(map(given_by, identity.grants.all()))
    return (*EVERYTHING, *given) if identity.is_superuser else given


def given_by(row: Grant) -> Given:
    """The rights that a grant gives, and where."""
    return grants.of_json({"gives": row.gives, "scope": row.scope})


def grant(identity: Identity, given: Given, *, by: Principal, now: datetime) -> Grant:
    """Give a role or a permission; nobody gives what they do not have.

    Raises PermissionMissing and AlreadyGranted.
    """
    require_cover([given], by=by, what="Granting")
    with transaction.atomic():
        # two grants at once: the second one waits, and then sees the first
        Identity.objects.select_for_update().get(pk=identity.pk)
        if given in map(given_by, Grant.objects.filter(identity=identity)):
            raise AlreadyGranted(f"{identity} is {given} already")
        _tell("grants.give", identity, str(given))
        return Grant.objects.create(
            identity=identity,
            gives=given.gives,
            scope=grants.scope_as_json(given.scope),
            granted_by=by.actor,
            granted_at=now,
        )


def revoke(identity: Identity, chosen: Sequence[Grant], *, by: Principal) -> None:
    """Take grants away. It counts from the next request on. Raises LastAdmin."""
    with _an_admin_stays():
        identity.grants.filter(pk__in=[each.pk for each in chosen]).delete()
        _tell("grants.take", identity, "; ".join(str(given_by(row)) for row in chosen))


@contextmanager
def _an_admin_stays() -> Iterator[None]:
    """A transaction that raises LastAdmin if it leaves an installation that had admins without one.

    The admins are locked first: of two who remove each other at once, the second one sees that.
    """
    with transaction.atomic():
        locked = Identity.objects.admins().select_for_update(of=("self",)).order_by("pk")
        had_admins = bool(locked.values_list("pk"))
        yield
        if had_admins and not Identity.objects.admins().exists() and not _superuser_exists():
            raise LastAdmin


def _superuser_exists() -> bool:
    """A superuser is an admin even before it has an identity."""
    return get_user_model().objects.filter(is_superuser=True, is_active=True).exists()


def _tell(what: str, identity: Identity | str, reason: str = "") -> None:
    audit.record(
        what,
        actor=audit.whoever(),
        object_kind="identity",
        object_id=str(identity),
        reason=reason,
    )


def require_cover(wanted: Sequence[Given], *, by: Principal, what: str) -> None:
    """Raise PermissionMissing unless `by` has everything that these grants give, and there."""
    for given in wanted:
        for permission in sorted(grants.permissions_of(given.gives)):
            reach = authority.reach(by, permission)
            if not grants.is_within(given.scope, reach):
                raise PermissionMissing(permission, f"{what} {given}")
