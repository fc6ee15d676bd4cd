"""Orders as tests make them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.bulk import ordering, working
from orchestrator.bulk.models import BulkOrder
from orchestrator.bulk.ordering import Wish
from orchestrator.core import clock
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from tests.factories import make_execution
from tests.principals import ROOT

REASON = "the printer burns"


def order(
    verb: str, query: str = "", *, by: Principal = ROOT, now: datetime | None = None, **values: Any
) -> BulkOrder:
    """Order it; by whoever may do everything."""
    wish = Wish(verb, query, **{"reason": REASON, **values})
    return ordering.order(wish, principal=by, now=now or clock.now())


def work_off(row: BulkOrder, *, looks: int = 50) -> BulkOrder:
    """Look until it has ended."""
    for _ in range(looks):
        working.look(now=clock.now(), actor="executor")
        row.refresh_from_db()
        if not row.is_open:
            return row
    raise AssertionError(f"still {row.state} at {row.position} of {row.matched}")


def several(number: int, status: str = "requested", **values: Any) -> list[Execution]:
    """So many executions of a moment ago."""
    return [make_execution(status, now=clock.now(), **values) for _ in range(number)]


def refused(row: BulkOrder) -> dict[str, str]:
    """What was refused, by id: the kinds."""
    return {str(each.subject_id): each.kind for each in row.refusals.all()}
