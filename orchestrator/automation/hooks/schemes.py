"""Signatures: HMAC over the bytes that came in, before anything parses them.

Everything here is pure. A scheme is given the time and the secrets, which are texts, and answers
with the time that was signed, or refuses.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol

from orchestrator.automation.hooks import texts
from orchestrator.automation.hooks.deliveries import Delivery, NotSigned, TooOld, Unreadable
from orchestrator.core import json_values

WINDOW_SECONDS = 300
"""A signature that is older, or from later than this, is refused."""

MOST_SIGNATURES = 16
"""Senders that rotate their secret send two."""

LEAST_SECRET_BYTES = 16
"""Of a secret in base64: of a shorter one, or of none, anybody could have signed."""

LONGEST_ID = 150
HEX, BASE64 = ENCODINGS = ("hex", "base64")
ALGORITHMS = ("sha256", "sha512")
_SECONDS = re.compile(r"[0-9]{1,12}")


class UnusableSecret(ValueError):
    """The secret does not have the form that the scheme needs."""


class Scheme(Protocol):
    """A scheme of signatures: who signs how, and what makes two deliveries the same."""

    @property
    def kept(self) -> frozenset[str]:
        """Headers that events have, in lower case."""
        ...

    def verify(self, delivery: Delivery, secrets: Sequence[str], *, now: datetime) -> None:
        """Raise NotSigned or TooOld, unless one of the secrets signed it, and just now. Raises
        UnusableSecret if none of them can have."""
        ...

    def key(self, delivery: Delivery, body: Any) -> str:
        """The key that a repeated delivery has in common with the first. Raises Unreadable."""
        ...

    def sign(self, body: bytes, secret: str, *, now: datetime, id: str) -> dict[str, str]:
        """The headers with which a sender would send this body."""
        ...


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A signature as the delivery states it."""

    timestamp: str = ""
    id: str = ""
    candidates: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Hmac:
    """A signature in a header, over a text of time, id and body."""

    header: str
    signed: texts.Parts
    algorithm: str = "sha256"
    encoding: str = HEX
    prefix: str = ""
    timestamp_header: str = ""
    id_header: str = ""
    id_headers: Sequence[str] = ()
    """Other headers that have the id, if the first one is not there."""
    id_fields: Sequence[str] = ()
    """Fields of the body that have the id, which are signed with it."""
    kept: frozenset[str] = field(default_factory=frozenset)

    def verify(self, delivery: Delivery, secrets: Sequence[str], *, now: datetime) -> None:
        signature = self._read(delivery)
        if not any(signature.candidates):
            raise NotSigned(f"Expected a signature in the header {self.header}")
        content = self._content(signature.timestamp, signature.id, delivery.body)
        if not self._is_signed(content, signature.candidates, secrets):
            raise NotSigned
        if self._is_timed:  # after the signature: a stranger is not told what the clock says
            _require_recent(signature.timestamp, now)

    def key(self, delivery: Delivery, body: Any) -> str:
        if isinstance(body, dict):
            for name in self.id_fields:
                if isinstance(body.get(name), str) and body[name]:
                    return _checked(body[name], name)
        signature = self._read(delivery)
        if signature.id and (not self._is_timed or self._signs_id):
            return _checked(signature.id, self.id_header)
        if self._is_timed:
            return f"{signature.timestamp}:{hashlib.sha256(delivery.body).hexdigest()}"
        raise Unreadable(f"Expected the id of the delivery in the header {self.id_header}")

    def sign(self, body: bytes, secret: str, *, now: datetime, id: str) -> dict[str, str]:
        timestamp = str(int(now.timestamp())) if self._is_timed else ""
        content = self._content(timestamp, id, body)
        digest = self._encoded(self._digest(self._secret(secret), content))
        headers = {self.header: f"{self.prefix}{digest}"}
        if self.timestamp_header:
            headers[self.timestamp_header] = timestamp
        if self.id_header:
            headers[self.id_header] = id
        return headers

    # --- the parts, of which some senders have their own ---

    def _read(self, delivery: Delivery) -> Signature:
        candidate = delivery.header(self.header)
        has_prefix = candidate.startswith(self.prefix)
        names = filter(None, (self.id_header, *self.id_headers))
        return Signature(
            timestamp=delivery.header(self.timestamp_header) if self.timestamp_header else "",
            id=next(filter(None, map(delivery.header, names)), ""),
            candidates=[candidate.removeprefix(self.prefix)] if has_prefix else [],
        )

    def _secret(self, text: str) -> bytes:
        return text.encode()

    @property
    def _is_timed(self) -> bool:
        return bool(self.timestamp_header)

    @property
    def _signs_id(self) -> bool:
        return any(place == texts.ID for _, place in self.signed)

    # --- cryptography ---

    def _content(self, timestamp: str, id: str, body: bytes) -> bytes:
        values = {texts.TIMESTAMP: _raw(timestamp), texts.ID: _raw(id), texts.BODY: body}
        return texts.filled(self.signed, values)

    def _is_signed(self, content: bytes, candidates: Sequence[str], secrets: Sequence[str]) -> bool:
        """Compare each candidate with each secret's, always all of them, in constant time."""
        keys, faults = [], []
        for text in secrets:
            try:
                keys.append(self._secret(text))
            except UnusableSecret as error:
                faults.append(error)
        if not keys and faults:
            raise faults[0]
        expected = [_raw(self._encoded(self._digest(key, content))) for key in keys]
        given = [_raw(self._folded(each)) for each in candidates[:MOST_SIGNATURES]]
        return sum(hmac.compare_digest(one, two) for one in expected for two in given) > 0

    def _folded(self, candidate: str) -> str:
        return candidate.lower() if self.encoding == HEX else candidate

    def _digest(self, key: bytes, content: bytes) -> bytes:
        return hmac.digest(key, content, self.algorithm)

    def _encoded(self, digest: bytes) -> str:
        return digest.hex() if self.encoding == HEX else base64.b64encode(digest).decode()


class Stripe(Hmac):
    """Time and signatures in one header: `t=1492774577,v1=5257a8...,v1=...`."""

    def _read(self, delivery: Delivery) -> Signature:
        pairs = [part.strip().partition("=") for part in delivery.header(self.header).split(",")]
        times = [value for name, _, value in pairs if name == "t"]
        return Signature(
            timestamp=times[0] if len(times) == 1 else "",
            candidates=[value for name, _, value in pairs if name == "v1"],
        )

    @property
    def _is_timed(self) -> bool:
        return True

    def sign(self, body: bytes, secret: str, *, now: datetime, id: str) -> dict[str, str]:
        timestamp = str(int(now.timestamp()))
        digest = self._digest(self._secret(secret), self._content(timestamp, "", body))
        return {self.header: f"t={timestamp},v1={self._encoded(digest)}"}


class Standard(Hmac):
    """Standard Webhooks: several signatures, by blanks, under a secret in base64."""

    PREFIX: ClassVar = "whsec_"

    def _read(self, delivery: Delivery) -> Signature:
        one = super()._read(delivery)
        values = delivery.header(self.header).split()
        candidates = [v.removeprefix(self.prefix) for v in values if v.startswith(self.prefix)]
        return Signature(timestamp=one.timestamp, id=one.id, candidates=candidates)

    def _secret(self, text: str) -> bytes:
        try:
            secret = base64.b64decode(text.strip().removeprefix(self.PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise UnusableSecret("expected base64, after whsec_ as it is shown") from None
        if len(secret) < LEAST_SECRET_BYTES:
            expected = f"expected at least {LEAST_SECRET_BYTES} bytes in base64"
            raise UnusableSecret(f"{expected}, found {len(secret)}")
        return secret


@dataclass(frozen=True, kw_only=True)
class Equality:
    """The secret itself in a header: no signature, and nothing better than https keeps it."""

    header: str
    id_headers: Sequence[str]
    """The first one that is there has the id."""
    kept: frozenset[str] = field(default_factory=frozenset)

    def verify(self, delivery: Delivery, secrets: Sequence[str], *, now: datetime) -> None:
        given = delivery.header(self.header)
        fitting = sum(hmac.compare_digest(_hashed(given), _hashed(each)) for each in secrets)
        if not given or not fitting:
            raise NotSigned(f"Expected the secret in the header {self.header}")

    def key(self, delivery: Delivery, body: Any) -> str:
        for name in self.id_headers:
            if value := delivery.header(name):
                return _checked(value, name)
        raise Unreadable(f"Expected the id of the delivery in the header {self.id_headers[0]}")

    def sign(self, body: bytes, secret: str, *, now: datetime, id: str) -> dict[str, str]:
        return {self.header: secret, self.id_headers[0]: id}


def _hashed(text: str) -> bytes:
    """Of one length, as comparing texts of different lengths takes different times."""
    return hashlib.sha256(_raw(text.strip())).digest()


def _raw(text: str) -> bytes:
    """The bytes of a header's value: servers decode them as Latin-1, whatever they mean."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _require_recent(timestamp: str, now: datetime) -> None:
    if _SECONDS.fullmatch(timestamp) is None:
        raise TooOld("Expected the time of the signature, in seconds since 1970")
    if abs(now.timestamp() - int(timestamp)) > WINDOW_SECONDS:
        raise TooOld(f"Expected a signature of the last {WINDOW_SECONDS} seconds")


def _checked(id: str, name: str) -> str:
    if len(id) > LONGEST_ID or not id.isprintable() or json_values.text_fault(id):
        expected = f"at most {LONGEST_ID} printable characters"
        raise Unreadable(f"Expected an id of {expected} in {name}")
    return id
