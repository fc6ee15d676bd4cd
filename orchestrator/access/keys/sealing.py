"""Sealing of values: AES-256-GCM under a data key of the row, and that under a key of the ring.

Both are bound to the owner and the name of their key, so that a row with another's content cannot
be opened. To seal again under another key of the ring, only the data key is opened. Cryptography is
loaded by whoever seals or opens: every command loads this module, and few do.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from orchestrator.access.keyring import Ring
from orchestrator.access.keys.references import Reference
from orchestrator.access.models import Key
from orchestrator.core.errors import MusterError

NONCE_BYTES = 12
DATA_KEY_BYTES = 32
DATA_KEY, VALUE = b"data key", b"value"


class CannotOpen(MusterError):
    """A key cannot be opened with this ring."""


@dataclass(frozen=True)
class Sealed:
    """A sealed value, as its row has it."""

    ring_id: str
    data_key: bytes
    content: bytes

    @classmethod
    def of(cls, key: Key) -> Sealed:
        return cls(key.ring_id, bytes(key.data_key), bytes(key.content))


def seal(value: str, *, of: Reference, ring: Ring) -> Sealed:
    """Seal a value under a new data key, and that under the first key of the ring."""
    data_key = secrets.token_bytes(DATA_KEY_BYTES)
    return Sealed(
        ring.first,
        _encrypted(ring.keys[ring.first], data_key, _bound(DATA_KEY, of)),
        _encrypted(data_key, value.encode(), _bound(VALUE, of)),
    )


def opened(sealed: Sealed, *, of: Reference, ring: Ring) -> str:
    """Open a value. Raises CannotOpen."""
    data_key = _data_key(sealed, of, ring)
    return _decrypted(data_key, sealed.content, _bound(VALUE, of), of).decode()


def resealed(sealed: Sealed, *, of: Reference, ring: Ring) -> Sealed:
    """Seal the data key under the first key of the ring; the value is not opened. Raises
    CannotOpen."""
    data_key = _data_key(sealed, of, ring)
    key = _encrypted(ring.keys[ring.first], data_key, _bound(DATA_KEY, of))
    return Sealed(ring.first, key, sealed.content)


def _data_key(sealed: Sealed, of: Reference, ring: Ring) -> bytes:
    if sealed.ring_id not in ring.keys:
        raise CannotOpen(
            f"The key {of} is sealed under the ring's key {sealed.ring_id}, which is not in "
            "MUSTER_KEYRING here"
        )
    return _decrypted(ring.keys[sealed.ring_id], sealed.data_key, _bound(DATA_KEY, of), of)


def _bound(what: bytes, of: Reference) -> bytes:
    return b"\0".join([b"muster", what, of.scope.encode(), of.owner.encode(), of.name.encode()])


def _encrypted(key: bytes, content: bytes, bound: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, content, bound)


def _decrypted(key: bytes, content: bytes, bound: bytes, of: Reference) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce, encrypted = content[:NONCE_BYTES], content[NONCE_BYTES:]
    try:
        return AESGCM(key).decrypt(nonce, encrypted, bound)
    except (InvalidTag, ValueError):
        raise CannotOpen(f"The key {of} was changed in the database and cannot be opened") from None
