"""The answers to what core asks of keys: which may be used, and their values. Fills
`core.keyholder`."""

from __future__ import annotations

import fnmatch
import socket
from collections.abc import Collection, Mapping

import structlog
from django.db.models import Q

from orchestrator.access import audit
from orchestrator.access.keyring import Ring, RingFault
from orchestrator.access.keys import sealing
from orchestrator.access.keys.references import InvalidReference, Reference
from orchestrator.access.keys.sealing import Sealed
from orchestrator.access.models import Identity, Key
from orchestrator.core.keyholder import Opened, Wanted

log = structlog.get_logger(__name__)


class Holder:
    """The keys of this installation."""

    def refusals(self, wanted: Collection[Wanted]) -> Mapping[Wanted, str]:
        """Say why some of these keys may not be used. Of a key that is out of reach it says what it
        says of an unknown one."""
        keys = _keys(wanted)
        refused = {}
        for each in wanted:
            usable, revoked = keys.get(each, (None, None))
            if usable is None:
                refused[each] = _why_none(each, revoked)
        return refused

    def open(self, wanted: Collection[Wanted]) -> Mapping[Wanted, Opened]:
        """Open these keys, in one query. The ring is read for it, and forgotten."""
        keys = _keys(wanted)
        try:
            ring = Ring.read()
        except RingFault as error:
            log.error("keys cannot be opened", error=str(error))
            return dict.fromkeys(wanted, Opened(refusal=_sentence(str(error))))
        opened = {}
        for each in wanted:
            usable, revoked = keys.get(each, (None, None))
            if usable is None:
                opened[each] = Opened(refusal=_sentence(_why_none(each, revoked)))
            else:
                opened[each] = _opened(usable, ring)
                _tell(each, opened[each])
        return opened


def _tell(wanted: Wanted, opened: Opened) -> None:
    """Report to the audit that a key was opened: soon, as claims come by the thousand."""
    whose = f"requested by identity {wanted.owner}" if wanted.owner else "requested here"
    audit.record_soon(
        "keys.open",
        actor=audit.Actor("worker", f"worker:{socket.gethostname()}"),
        object_kind="key",
        object_id=wanted.reference,
        decision="denied" if opened.refusal else "allowed",
        reason=f"for {wanted.action_ref}, {whose}",
    )


def _opened(key: Key, ring: Ring) -> Opened:
    reference = Reference.of(key)
    try:
        return Opened(sealing.opened(Sealed.of(key), of=reference, ring=ring))
    except sealing.CannotOpen as error:
        log.error("key cannot be opened", key=str(reference), error=str(error))
        return Opened(refusal=_sentence(str(error)))


def _why_none(wanted: Wanted, revoked: Key | None) -> str:
    if revoked is not None:
        return f"the key {wanted.reference} was revoked"
    return f"there is no key {wanted.reference} that {wanted.action_ref} may get"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _keys(wanted: Collection[Wanted]) -> dict[Wanted, tuple[Key | None, Key | None]]:
    """Find the usable key of each, and the one that was revoked last; out of reach is none."""
    references: dict[Wanted, Reference] = {}
    identities = _identities(wanted)
    for each in wanted:
        try:
            user = identities.get(each.owner, "")
            references[each] = Reference.read(each.reference, user=user)
        except InvalidReference:
            continue
    condition = Q(pk__in=[])
    for reference in set(references.values()):
        condition |= Q(scope=reference.scope, owner=reference.owner, name=reference.name)
    rows: dict[Reference, list[Key]] = {}
    for key in Key.objects.filter(condition).order_by("pk"):
        rows.setdefault(Reference.of(key), []).append(key)
    found: dict[Wanted, tuple[Key | None, Key | None]] = {}
    for each, reference in references.items():
        usable = revoked = None
        for key in rows.get(reference, ()):
            if _may_get(key, each.action_ref):
                usable, revoked = (None, key) if key.revoked_at else (key, revoked)
        found[each] = (usable, revoked)
    return found


def _identities(wanted: Collection[Wanted]) -> dict[int, str]:
    """The requesters of those that refer to a key of a user; asked only for them."""
    prefix = f"{Key.Scope.USER}/"
    owners = {each.owner for each in wanted if each.reference.startswith(prefix) and each.owner}
    if not owners:
        return {}
    # no other columns of users: who runs executors and workers may not read them
    columns = ("service_name", "disabled_at", "user__username", "user__is_active")
    rows = Identity.objects.filter(pk__in=owners).select_related("user").only(*columns)
    return {identity.pk: str(identity) for identity in rows if not identity.is_disabled}


def _may_get(key: Key, action_ref: str) -> bool:
    """Return True if the scope of the key reaches the action."""
    pack = action_ref.partition(".")[0]
    if key.scope == Key.Scope.PACK:
        return key.owner == pack
    if key.scope == Key.Scope.INSTALLATION:
        return any(fnmatch.fnmatchcase(pack, pattern) for pattern in key.packs)
    return bool(key.owner)  # the reference was read as that of who requested
