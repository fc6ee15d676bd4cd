"""Keys in the database: create, rotate, revoke, seal again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction

from orchestrator.access import audit
from orchestrator.access.keyring import Ring
from orchestrator.access.keys import sealing
from orchestrator.access.keys.references import WITHOUT_OWNER, Reference
from orchestrator.access.keys.sealing import Sealed
from orchestrator.access.models import Key
from orchestrator.core import authority, json_values
from orchestrator.core.authority import WHOLE, Place, Principal
from orchestrator.core.errors import Conflict, MusterError, NotFound
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Pack

LEAST_CHARACTERS = 8
"""A shorter value could be guessed from where it is masked."""
LONGEST_BYTES = 65_536
LONGEST_DESCRIPTION = 200

MANAGE = "keys.manage"

PATTERN = re.compile(r"[a-z0-9_*-]{1,60}")
"""A pack's name, in which `*` stands for any characters."""

RESEAL_BATCH = 100


class InvalidKey(MusterError):
    """The key is refused. `field` says which part of it is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class KeyExists(Conflict):
    """There is a key of this name."""

    kind = "key-exists"


class UnknownKey(NotFound):
    """No usable key has this name."""


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """A key as somebody asks for it."""

    reference: Reference
    value: str
    packs: Sequence[str] = ()
    """The packs whose actions may get it, for a key of the installation."""
    description: str = ""

    def __repr__(self) -> str:
        return f"NewKey({self.reference})"


def create(new: NewKey, *, by: Principal, now: datetime) -> Key:
    """Create a key. The name of a revoked one is free again.

    Raises InvalidKey, KeyExists, RingFault and PermissionMissing.
    """
    _check(new, by)
    reference, actor = new.reference, by.actor
    sealed = sealing.seal(new.value, of=reference, ring=Ring.to_seal())
    key = Key(
        scope=reference.scope,
        owner=reference.owner,
        name=reference.name,
        packs=list(new.packs),
        description=new.description,
        created_at=now,
        created_by=actor,
        changed_at=now,
        changed_by=actor,
    )
    _take(key, sealed)
    try:
        with transaction.atomic():
            key.save(force_insert=True)
            _tell("keys.create", reference, f"for {', '.join(new.packs)}" if new.packs else "", now)
    except IntegrityError:
        raise KeyExists(f"There is a key {reference} already: rotate it, or revoke it") from None
    return key


def rotate(reference: Reference, *, value: str, by: Principal, now: datetime) -> Key:
    """Give a key another value. What is claimed from now on gets it; the old one is gone.

    Raises InvalidKey, UnknownKey, RingFault and PermissionMissing.
    """
    _check_value(value)
    sealed = sealing.seal(value, of=reference, ring=Ring.to_seal())
    with transaction.atomic():
        key = _held(reference, by)
        _take(key, sealed)
        key.version += 1
        key.changed_at, key.changed_by = now, by.actor
        key.save()
        _tell("keys.rotate", reference, f"version {key.version}", now)
    return key


def revoke(reference: Reference, *, by: Principal, now: datetime) -> Key:
    """Destroy the value. What refers to it is refused from now on. Raises UnknownKey and
    PermissionMissing."""
    with transaction.atomic():
        key = _held(reference, by)
        _take(key, Sealed("", b"", b""))
        key.revoked_at, key.revoked_by = now, by.actor
        key.save()
        _tell("keys.revoke", reference, "", now)
    return key


def _tell(what: str, reference: Reference, reason: str, now: datetime) -> None:
    audit.record(
        what,
        actor=audit.whoever(),
        object_kind="key",
        object_id=str(reference),
        reason=reason,
        now=now,
    )


def find(reference: Reference, *, by: Principal) -> Key:
    """Return a usable key that the caller may change. Raises UnknownKey and PermissionMissing."""
    return _one(reference, by, for_update=False)


def reseal(*, ring: Ring) -> tuple[int, list[str]]:
    """Seal every data key under the first key of the ring; returns how many, and what could not be
    opened. May be stopped and begun again, and runs beside everything else."""
    done, faults, last = 0, list[str](), 0
    others = Key.objects.usable().exclude(ring_id=ring.first).order_by("pk")
    while batch := list(others.filter(pk__gt=last)[:RESEAL_BATCH]):
        for key in batch:
            last = key.pk
            try:
                sealed = sealing.resealed(Sealed.of(key), of=Reference.of(key), ring=ring)
            except sealing.CannotOpen as error:
                faults.append(str(error))
                continue
            # one that was rotated or revoked meanwhile is left as it is
            unchanged = Key.objects.usable().filter(pk=key.pk, data_key=bytes(key.data_key))
            done += unchanged.update(ring_id=sealed.ring_id, data_key=sealed.data_key)
    return done, faults


def _held(reference: Reference, by: Principal) -> Key:
    return _one(reference, by, for_update=True)


def _one(reference: Reference, by: Principal, *, for_update: bool) -> Key:
    rows = Key.objects.usable().filter(
        scope=reference.scope, owner=reference.owner, name=reference.name
    )
    # keys beyond one's reach are unknown; those that one only sees are not one's to change
    visible = rows.visible_to(by)
    key = (visible.select_for_update() if for_update else visible).first()
    if key is None:
        raise UnknownKey(f"There is no key {reference}")
    _require(reference, key.place, by)
    return key


def _require(reference: Reference, place: Place, by: Principal) -> None:
    """Raise PermissionMissing, unless it is the caller's own or the permission holds there."""
    if reference.scope != Key.Scope.USER or reference.owner != getattr(by, "identity", ""):
        authority.require(by, MANAGE, place)


def _take(key: Key, sealed: Sealed) -> None:
    key.ring_id, key.data_key, key.content = sealed.ring_id, sealed.data_key, sealed.content


# --- checks --------------------------------------------------------------------------------------


def _check(new: NewKey, by: Principal) -> None:
    reference = new.reference
    if reference.scope == Key.Scope.PACK:
        if not _has_pack(reference.owner, by):
            known = ", ".join(WITHOUT_OWNER)
            name = reference.owner
            expected = f"expected an installed pack, or {known}"
            raise InvalidKey("reference", f"no pack is called {name!r}: {expected}")
    elif reference.scope == Key.Scope.USER and not reference.owner:
        raise InvalidKey("reference", "only somebody with an identity has keys under user/")
    else:
        _require(reference, WHOLE, by)
    _check_packs(reference, new.packs)
    _check_value(new.value)
    if len(new.description) > LONGEST_DESCRIPTION or not new.description.isprintable():
        expected = f"at most {LONGEST_DESCRIPTION} printable characters"
        raise InvalidKey("description", f"expected {expected}")


def _has_pack(name: str, by: Principal) -> bool:
    """Return True for a pack within the caller's reach; another one is as unknown as none."""
    if name in WITHOUT_OWNER or not Pack.objects.filter(name=name).exists():
        return False
    return authority.may(by, MANAGE, Place(PACKS, name))


def _check_packs(reference: Reference, packs: Sequence[str]) -> None:
    if reference.scope != Key.Scope.INSTALLATION:
        if packs:
            raise InvalidKey("packs", "only a key of the installation names packs")
        return
    if not packs:
        expected = "the packs whose actions may get it, such as billing or mail-*; * is all of them"
        raise InvalidKey("packs", f"expected {expected}")
    for pack in packs:
        if PATTERN.fullmatch(pack) is None:
            raise InvalidKey("packs", "expected names of a-z, 0-9, _, - and *")


def _check_value(value: str) -> None:
    """Quote nothing of it."""
    if fault := json_values.text_fault(value):
        raise InvalidKey("value", f"contains {fault}")
    if len(value.strip()) < LEAST_CHARACTERS:
        found = len(value.strip())
        raise InvalidKey("value", f"expected at least {LEAST_CHARACTERS} characters, found {found}")
    if (size_bytes := len(value.encode())) > LONGEST_BYTES:
        raise InvalidKey("value", f"expected at most {LONGEST_BYTES:,} bytes, found {size_bytes:,}")
