"""Prometheus metrics of policies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Count, Min

from orchestrator.core.metrics import Counter
from orchestrator.core.metrics.exposition import tallied
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.policies.models import Policy, PolicySlot, PolicyWait

REJECTED = Counter(
    "muster_policy_rejected_total",
    "Executions that ended as a policy that lets nothing wait did not admit them.",
    lambda: Policy.Kind.values,
    label="kind",
)
TALLIED = (REJECTED,)

WAITING = Gauge("muster_policy_waiting", "Executions that wait for a policy.", "policy")
HELD = Gauge(
    "muster_policy_held", "Executions that workers hold of a policy of concurrency.", "policy"
)
OLDEST = Gauge(
    "muster_policy_oldest_wait_seconds",
    "For how long the first of them has waited for a policy; 0 if none waits.",
    "policy",
)
METRICS = (*TALLIED, WAITING, HELD, OLDEST)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of policies, from the database as it is now."""
    yield from tallied(TALLIED)
    refs = list(Policy.objects.in_use().values_list("ref", flat=True))
    yield WAITING.by(dict.fromkeys(refs, 0) | _count(PolicyWait.objects.waiting()))
    yield HELD.by(dict.fromkeys(refs, 0) | _count(PolicySlot.objects.held()))
    waits = PolicyWait.objects.waiting().order_by().values_list("bucket__policy__ref")
    oldest = {
        ref: max(0.0, (now - at).total_seconds()) for ref, at in waits.annotate(at=Min("since"))
    }
    yield OLDEST.by(dict.fromkeys(refs, 0.0) | oldest)


def _count(rows: Any) -> dict[str, int]:
    counted = rows.order_by().values_list("bucket__policy__ref").annotate(number=Count("pk"))
    return dict(counted)
