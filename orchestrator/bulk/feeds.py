"""The feed of bulk orders: what is said of them to who listens."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from orchestrator.bulk.models import BulkOrder
from orchestrator.core.authority import WHOLE
from orchestrator.core.news import About


def orders(ids: Collection[UUID]) -> dict[UUID, About]:
    rows = BulkOrder.objects.filter(pk__in=ids).values_list("pk", "ordered_by", "state")
    return {id: About(str(id), WHOLE, owner, state) for id, owner, state in rows}
