"""The effects of a deferral: how long the execution waits whose action said "not now", and for how
long its worker pauses. Queues say so; for work without one, and where they do not, the settings
do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.conf import settings

from orchestrator.core import queue_terms


@dataclass(frozen=True)
class DeferTerms:
    """The effects of a deferral."""

    defer_seconds: float
    """The first wait of an execution; it doubles each time, up to a minute."""
    pause_seconds: float
    """For so long its worker takes nothing more of the same queue, or action without one."""
    health_check: str = ""
    """A callable of `MUSTER_QUEUE_HEALTH_CHECKS` that ends this pause as soon as it passes."""


def terms(queues: Collection[str | None]) -> Mapping[str | None, DeferTerms]:
    """The terms of each of these queues; None is work without one."""
    usual = DeferTerms(settings.MUSTER.defer_seconds, settings.MUSTER.defer_pause_seconds)
    known: dict[str | None, DeferTerms] = dict.fromkeys(queues, usual)
    if names := {name for name in queues if name is not None}:
        for name, queue in queue_terms.queues().terms(names).items():
            wait, pause = queue.defer_seconds, queue.defer_pause_seconds
            known[name] = DeferTerms(
                usual.defer_seconds if wait is None else wait,
                usual.pause_seconds if pause is None else pause,
                queue.health_check,
            )
    return known
