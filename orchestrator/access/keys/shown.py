"""A key: as JSON, and as facts. Its value is nowhere."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from orchestrator.access.models import Key
from orchestrator.core import words
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, State, said

KINDS = words.kinds(success="usable", danger="revoked")


class KeyOut(Shown):
    """A key, without its value, which nothing returns."""

    reference: str = Field(description="As parameters refer to it, such as `billing/stripe`.")
    scope: Key.Scope
    owner: str = Field(description="The pack or the user; empty for the installation's.")
    name: str
    packs: list[str] = Field(description="The packs whose actions may get it.")
    description: str
    state: str = Field(description="usable or revoked.")
    version: int = Field(description="Grows with each rotation.")
    ring_id: str = Field(description="The key of the ring under which it is sealed.")
    created_at: datetime
    created_by: str
    changed_at: datetime = Field(description="When its value was last set.")
    changed_by: str
    revoked_at: datetime | None
    revoked_by: str


COPIED = (
    "scope", "owner", "name", "description", "version", "ring_id", "created_at", "created_by",
    "changed_at", "changed_by", "revoked_at", "revoked_by",
)  # fmt: skip
"""The fields that are copied from the row."""


def whole(key: Key) -> KeyOut:
    """Convert a key."""
    return KeyOut(
        **{name: getattr(key, name) for name in COPIED},
        reference=str(key),
        packs=packs(key),
        state=state(key),
    )


def packs(key: Key) -> list[str]:
    """The packs whose actions may get it; `*` is all of them."""
    if key.scope == Key.Scope.PACK:
        return [key.owner]
    return list(key.packs) if key.scope == Key.Scope.INSTALLATION else ["*"]


def whom(key: Key) -> str:
    """The packs whose actions may get it, or the identity whose requests may."""
    return key.owner if key.scope == Key.Scope.USER else ", ".join(packs(key))


def state(key: Key) -> str:
    """`usable` or `revoked`."""
    return "usable" if key.revoked_at is None else "revoked"


def facts(key: Key) -> list[Fact]:
    """All that is to be known of it."""
    revoked = At(key.revoked_at, f"by {key.revoked_by}") if key.revoked_at else None
    return said(
        [
            ("Key", str(key)),
            ("State", State(state(key), KINDS)),
            ("Of", f"{key.scope} {key.owner}".strip()),
            ("For", whom(key)),
            ("Description", key.description),
            ("Version", key.version),
            ("Value set", At(key.changed_at, f"by {key.changed_by}")),
            ("Created", At(key.created_at, f"by {key.created_by}")),
            ("Revoked", revoked),
            ("Sealed under", key.ring_id),
        ]
    )
