"""The workers: how they come, stay, go, are found missing, are looked after, and are chosen."""

from orchestrator.fleet.absence import last_seen_at
from orchestrator.fleet.lives import (
    Told,
    UnknownWorker,
    beat,
    drain,
    enlist,
    leave,
    mark_healthy,
    mark_stale,
    mark_unhealthy,
    register,
)
from orchestrator.fleet.orders import (
    WorkerHoldsWork,
    WorkerIsUp,
    cordon,
    order_drain,
    retire,
    retire_gone,
    uncordon,
)
from orchestrator.fleet.placement import FleetBusy, Need, NoWorkerAvailable, Placement
from orchestrator.fleet.portrait import describe

__all__ = [
    "FleetBusy",
    "Need",
    "NoWorkerAvailable",
    "Placement",
    "Told",
    "UnknownWorker",
    "WorkerHoldsWork",
    "WorkerIsUp",
    "beat",
    "cordon",
    "describe",
    "drain",
    "enlist",
    "last_seen_at",
    "leave",
    "mark_healthy",
    "mark_stale",
    "mark_unhealthy",
    "order_drain",
    "register",
    "retire",
    "retire_gone",
    "uncordon",
]
