"""References to keys: `billing/stripe`, `installation/smtp`, `user/github`."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.access.models import Key
from orchestrator.core import key_references
from orchestrator.core.errors import MusterError

WITHOUT_OWNER = (Key.Scope.INSTALLATION.value, Key.Scope.USER.value)
"""The words that stand before the name where the reference does not name the owner. No pack with
one of these names can have keys."""


class InvalidReference(MusterError):
    """This is no reference to a key."""


@dataclass(frozen=True)
class Reference:
    """A key by its scope, its owner and its name."""

    scope: str
    owner: str
    """The pack, or the identity; empty for the installation's."""
    name: str

    @classmethod
    def read(cls, text: str, *, user: str) -> Reference:
        """Read `owner/name`; `user/...` is of this identity. Raises InvalidReference."""
        if key_references.REFERENCE.fullmatch(text) is None:
            shown = repr(text) if len(text) <= 40 else f"a text of {len(text):,} characters"
            raise InvalidReference(f"expected {key_references.EXPECTED}, found {shown}")
        owner, _, name = text.partition("/")
        if owner == Key.Scope.INSTALLATION:
            return cls(owner, "", name)
        if owner == Key.Scope.USER:
            return cls(owner, user, name)
        return cls(Key.Scope.PACK.value, owner, name)

    @classmethod
    def of(cls, key: Key) -> Reference:
        return cls(str(key.scope), key.owner, key.name)

    def __str__(self) -> str:
        """As parameters have it."""
        return f"{self.owner if self.scope == Key.Scope.PACK else self.scope}/{self.name}"
