"""The feed of inquiries: what is said of them to who listens."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS
from orchestrator.core.news import About
from orchestrator.inquiries.models import Inquiry


def inquiries(ids: Collection[UUID]) -> dict[UUID, About]:
    rows = Inquiry.objects.filter(pk__in=ids).values_list("pk", "pack", "asked_by", "state")
    return {id: About(str(id), Place(PACKS, pack), asker, state) for id, pack, asker, state in rows}
