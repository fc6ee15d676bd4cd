"""The workers: registration, heartbeats, loss, checks, orders of operators, and placement."""

from orchestrator.core.fleet.lives import (
    HeartbeatAnswer,
    UnknownWorker,
    admit,
    beat,
    clock_is_trusted,
    drain,
    enlist,
    have_code,
    lack_code,
    leave,
    mark_healthy,
    mark_stale,
    mark_unhealthy,
    register,
)
from orchestrator.core.fleet.needs import Need
from orchestrator.core.fleet.orders import (
    WorkerHoldsWork,
    WorkerIsRetired,
    WorkerIsUp,
    cordon,
    order_drain,
    retire,
    retire_gone,
    uncordon,
)
from orchestrator.core.fleet.pauses import is_waiting_for_health, pause, set_pauses
from orchestrator.core.fleet.placement import FleetBusy, NoWorkerAvailable, Placement
from orchestrator.core.fleet.portrait import lacking, named, pauses_of
from orchestrator.core.fleet.subscriptions import InvalidSubscription
from orchestrator.core.fleet.takeovers import WorkerRuns, require_vacant
from orchestrator.core.fleet.why_none import BROKER_CHECK, present, present_until
from orchestrator.core.models.fleet import LONGEST_PAUSE, paused

__all__ = [
    "BROKER_CHECK",
    "LONGEST_PAUSE",
    "FleetBusy",
    "HeartbeatAnswer",
    "InvalidSubscription",
    "Need",
    "NoWorkerAvailable",
    "Placement",
    "UnknownWorker",
    "WorkerHoldsWork",
    "WorkerIsRetired",
    "WorkerIsUp",
    "WorkerRuns",
    "admit",
    "beat",
    "clock_is_trusted",
    "cordon",
    "drain",
    "enlist",
    "have_code",
    "is_waiting_for_health",
    "lack_code",
    "lacking",
    "leave",
    "mark_healthy",
    "mark_stale",
    "mark_unhealthy",
    "named",
    "order_drain",
    "pause",
    "paused",
    "pauses_of",
    "present",
    "present_until",
    "register",
    "require_vacant",
    "retire",
    "retire_gone",
    "set_pauses",
    "uncordon",
]
