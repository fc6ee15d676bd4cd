"""Checks of identities, tokens and the ring of the keys.

Those of identities and tokens read the database, so no command of ours runs them before it starts.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import DatabaseError

from orchestrator.access import keyring
from orchestrator.access.models import ApiToken, Grant, Identity
from orchestrator.core.checks import CONFIGURATION

ACCESS = "access"


@register(ACCESS)
def check_access(**_: Any) -> Sequence[CheckMessage]:
    """Check for tokens without an owner of their own, for tokens that never expire, and for staff
    without a grant."""
    try:
        return list(_findings())
    except DatabaseError:
        return []  # before the first migration, or without a database: other commands say so


def _findings() -> Iterator[CheckMessage]:
    legacy = ApiToken.objects.filter(identity__is_legacy=True, revoked_at=None)
    if names := sorted(set(legacy.values_list("name", flat=True))):
        owner = Identity.objects.get(is_legacy=True)
        yield Warning(
            f"Tokens that were made before tokens had owners may do everything: {_listed(names)}.",
            hint="Replace each: `token create NAME` for a service account with the role that it "
            f"needs, then `token revoke`. At last: manage.py access disable {owner}",
            id="muster.W004",
        )
    for_ever = ApiToken.objects.filter(expires_at=None, revoked_at=None)
    if names := sorted(set(for_ever.values_list("name", flat=True))):
        yield Warning(
            f"Tokens that never expire: {_listed(names)}.",
            hint="`manage.py token rotate NAME` gives one an end.",
            id="muster.W005",
        )
    granted = Grant.objects.filter(identity__user__isnull=False).values("identity__user")
    staff = get_user_model().objects.filter(is_staff=True, is_active=True, is_superuser=False)
    if names := list(staff.exclude(pk__in=granted).values_list("username", flat=True)):
        yield Warning(
            f"Staff without a grant see nothing in the admin: {_listed(names)}.",
            hint="manage.py access grant user:NAME viewer",
            id="muster.W006",
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


@register(CONFIGURATION)
def check_keyring(**_: Any) -> Sequence[CheckMessage]:
    """Check the ring, if there is one: without it nothing that uses a key can run."""
    file = keyring.path()
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return []  # it is made with the first key, and only who needs it misses it
    except OSError:
        return []  # a process that may not read it, and need not
    messages: list[CheckMessage] = []
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        messages.append(
            Warning(
                f"The ring {file} is open to other users: its mode is {stat.S_IMODE(mode):04o}.",
                hint=f"chmod 600 {file}",
                id="muster.W010",
            )
        )
    try:
        keyring.Ring.read()
    except keyring.RingFault as error:
        hint = "Every key needs it: put the right file there, see docs/keys.md."
        messages.append(Error(str(error), hint=hint, id="muster.E010"))
    return messages
