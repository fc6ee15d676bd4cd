"""The decision who may send a body at all: by the path and the headers, before it is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from orchestrator.access import audit
from orchestrator.access.audit import Actor
from orchestrator.automation import hook_paths
from orchestrator.automation.hooks import profiles
from orchestrator.automation.hooks.deliveries import Outcome, UnknownPath
from orchestrator.automation.models import Webhook
from orchestrator.automation.receiving.counts import counts
from orchestrator.core import shared_cache
from orchestrator.core.authority import Principal

AUDITED_EVERY_SECONDS = 60
STRANGER = Actor("stranger", "stranger")

Identify = Callable[[], Principal]
"""Returns whoever sends, or raises: asked for the profile `token` alone."""


def admit(path: str, *, address: str, identify: Identify, now: datetime) -> Webhook:
    """The hook at this path, whose body may be read. Raises UnknownPath, and what `identify`
    raises."""
    hook = known(path, address=address, now=now)
    if is_for_tokens(hook):
        identify()
    return hook


def known(path: str, *, address: str, now: datetime) -> Webhook:
    """The hook at this path. Raises UnknownPath."""
    hook = hook_paths.find(path)
    if hook is None:
        counts.note(Outcome.UNKNOWN_PATH, now=now)
        _note_stranger(path, address, now)
        raise UnknownPath("No hook has this path")
    return hook


def is_for_tokens(hook: Webhook) -> bool:
    """Return True if callers bring a token of the API."""
    return bool(hook.trigger.parameters["profile"] == profiles.TOKEN)


def _note_stranger(path: str, address: str, now: datetime) -> None:
    """Write to the audit once a minute, and not for each path that a stranger tries."""
    key = f"unknown hooks from {address}"
    if shared_cache.count(key, seconds=AUDITED_EVERY_SECONDS) == 1:
        audit.record_soon(
            "hooks.receive",
            actor=STRANGER,
            object_kind="hook",
            object_id=path[:100],
            decision="denied",
            reason="no hook has this path",
            now=now,
        )
