"""The audit: who did what, who was refused what, in rows that nobody changes.

audit.record("tokens.revoke", actor=actor, object_kind="token", object_id=token.name)
"""

from orchestrator.access.audit.chain import GENESIS, Head, content_of, seal, verify
from orchestrator.access.audit.recording import (
    SYSTEM,
    Actor,
    Decision,
    Origin,
    flush,
    is_written_elsewhere,
    origin,
    record,
    record_soon,
)
from orchestrator.access.audit.requests import (
    changed,
    contents_shown,
    decided,
    of_principal,
    of_user,
    required,
    shows_contents_of,
    watched_command,
    whoever,
)

__all__ = [
    "GENESIS",
    "SYSTEM",
    "Actor",
    "Decision",
    "Head",
    "Origin",
    "changed",
    "content_of",
    "contents_shown",
    "decided",
    "flush",
    "is_written_elsewhere",
    "of_principal",
    "of_user",
    "origin",
    "record",
    "record_soon",
    "required",
    "seal",
    "shows_contents_of",
    "verify",
    "watched_command",
    "whoever",
]
