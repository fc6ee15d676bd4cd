"""The feed of policies: what is said of them to who listens."""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.core.news import About
from orchestrator.policies.models import Policy


def policies(ids: Collection[int]) -> dict[int, About]:
    rows = Policy.objects.filter(pk__in=ids).only("ref", "enabled", "retired_at")
    return {row.pk: About(row.ref, row.place, state=row.state) for row in rows}
