"""News of statuses that are not an end: published only while an app wants them.

They are hints, as all messages. Every process asks once a second whether anybody wants them, so
that nobody pays for them otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from uuid import UUID

from django.db import transaction

from orchestrator.core import frame, publisher

ASK_EVERY_SECONDS = 1.0


class _Demand:
    """Whether an app wanted the news when it was last asked."""

    def __init__(self) -> None:
        self.exists, self.asked_at = False, float("-inf")

    def ask(self) -> bool:
        if time.monotonic() - self.asked_at > ASK_EVERY_SECONDS:
            wants = frame.collect(lambda app: app.status_wanted)
            self.exists, self.asked_at = any(want() for want in wants), time.monotonic()
        return self.exists


_demand = _Demand()


def tell(execution_ids: Collection[UUID]) -> None:
    """Tell the executors, after the commit, that the statuses of these changed."""
    if execution_ids and _demand.ask():
        messages = publisher.status_changed(list(execution_ids))
        transaction.on_commit(partial(publisher.send_soon, messages))
