"""Have somebody look at a hook that cannot check signatures, as its secrets cannot be opened."""

from __future__ import annotations

from datetime import datetime

from orchestrator.automation import subjects
from orchestrator.automation.models import Webhook
from orchestrator.core import investigations, shared_cache
from orchestrator.core.models import DLQEntry

LOOKED_AFTER_EVERY_SECONDS = 60


def open_for(hook: Webhook, detail: str, *, now: datetime) -> None:
    """Open an investigation, unless one is pending; tries it once a minute."""
    if shared_cache.count(f"hook without secret {hook.pk}", seconds=LOOKED_AFTER_EVERY_SECONDS) > 1:
        return
    investigations.open_for(
        subjects.subjects_of_webhooks([hook]),
        reason=DLQEntry.Reason.MESSAGE_INVALID,
        detail=f"Deliveries are refused, as no secret of the hook can be opened. {detail}".strip(),
        now=now,
        actor="automation",
    )
