"""News of statuses that are not an end: published only while an app wants them.

They are hints, as all messages. Every process asks once a second whether anybody wants them, so
that nobody pays for them otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from uuid import UUID

from django.db import transaction

from orchestrator.core import messages, relay
from orchestrator.core.demand import Demand

_demand = Demand(lambda app: app.status_wanted)


def tell(execution_ids: Collection[UUID]) -> None:
    """Tell the executors, after the commit, that the statuses of these changed."""
    if execution_ids and _demand.ask():
        hints = messages.status_changed(list(execution_ids))
        transaction.on_commit(partial(relay.send_soon, hints))
