"""A history as triggers of one type follow it, and how deep executions are in rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.automation.models import Enforcement, Trigger
from orchestrator.automation.recording import NewEvent


@dataclass(frozen=True, kw_only=True)
class Followed:
    """A history as triggers of one type follow it. Its rows are never changed, and each gets its id
    after its transaction has got a number: something else was written before."""

    wanted: Callable[[Trigger, QuerySet[Any, Any]], QuerySet[Any, Any]]
    """Takes rows; returns those that the trigger reports, with the columns that the others need."""
    is_named: Callable[[Trigger, Any], bool]
    """Returns False for a row that the trigger's patterns leave out: no database compares them."""
    key: Callable[[Any], str]
    """The key of a row's event, whenever and however often it is read."""
    events: Callable[[Trigger, Sequence[Any]], list[NewEvent]]
    """The events of rows that were not recorded before."""


def depths(execution_ids: Collection[UUID]) -> dict[UUID, int]:
    """The depth of the event that each of these executions answers; those that answer none are left
    out."""
    causes = Enforcement.objects.filter(execution__in=execution_ids)
    pairs = causes.values_list("execution_id", "event__depth")
    return {id: depth for id, depth in pairs if id is not None}
