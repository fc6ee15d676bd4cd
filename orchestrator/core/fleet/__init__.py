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
    WorkerIsUp,
    cordon,
    order_drain,
    retire,
    retire_gone,
    uncordon,
)
from orchestrator.core.fleet.placement import FleetBusy, NoWorkerAvailable, Placement
from orchestrator.core.fleet.portrait import lacking, named
from orchestrator.core.fleet.why_none import BROKER_CHECK, present, present_until

__all__ = [
    "BROKER_CHECK",
    "FleetBusy",
    "HeartbeatAnswer",
    "Need",
    "NoWorkerAvailable",
    "Placement",
    "UnknownWorker",
    "WorkerHoldsWork",
    "WorkerIsUp",
    "admit",
    "beat",
    "clock_is_trusted",
    "cordon",
    "drain",
    "enlist",
    "have_code",
    "lack_code",
    "lacking",
    "leave",
    "mark_healthy",
    "mark_stale",
    "mark_unhealthy",
    "named",
    "order_drain",
    "present",
    "present_until",
    "register",
    "retire",
    "retire_gone",
    "uncordon",
]
