"""Reads that several of the models share."""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

from django.db import models

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.frame import PACKS

Row = TypeVar("Row", bound=models.Model)


class OfPacks(models.QuerySet[Row]):
    """Rows that a reference, `pack.name`, puts into a pack."""

    ref: ClassVar = "ref"
    """The column with the reference."""
    read_by: ClassVar[str]
    """The permission to see them."""

    def visible_to(self, principal: Principal, permission: str | None = None) -> Self:
        """Those in packs for which the caller has a permission; by default the one to see them."""
        reach = authority.reach(principal, permission or self.read_by)
        if reach.is_everywhere:
            return self
        return self.filter(reach.condition(PACKS, self.ref, is_ref=True))


class Handled(models.QuerySet[Row]):
    """Rows that executors handle, several at once."""

    def locked(self) -> Self:
        """Lock the rows in the order of their ids, except those that another session holds."""
        return self.order_by("pk").select_for_update(skip_locked=True, of=("self",), no_key=True)
