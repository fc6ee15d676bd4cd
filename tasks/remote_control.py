"""Celery's remote control, as far as `MUSTER_REMOTE_CONTROL` allows: nothing, looking, everything.

Celery has one register of commands for the whole process. With `inspect` only those that change
nothing stay in it: whoever reaches the broker may look and not steer.
"""

from __future__ import annotations

from typing import Any

import structlog
from celery import bootsteps
from celery.worker import control
from django.conf import settings
from kombu import Queue

log = structlog.get_logger(__name__)

INSPECTION = {
    "active",
    "active_queues",
    "clock",
    "conf",
    "ping",
    "query_task",
    "registered",
    "report",
    "reserved",
    "revoked",
    "scheduled",
    "stats",
}
"""Commands that change nothing. Of those that Celery calls inspection too, `hello` takes revoked
tasks from its sender, and `objgraph`, `memdump` and `memsample` write files or take long."""

active_queues_of_celery = control.Panel.data["active_queues"]


def active_queues(state: Any) -> list[dict[str, Any]]:
    """List the queues that Celery's consumer reads, and those that ours reads beside it."""
    beside: list[Queue] = getattr(state.consumer.controller, "queues_beside", [])
    listed: list[dict[str, Any]] = active_queues_of_celery(state)
    return listed + [queue.as_dict(recurse=True) for queue in beside]


class RemoteControlStep(bootsteps.Step):
    """Leaves in the register what the setting allows, before Celery's own step listens."""

    def include_if(self, worker: Any) -> bool:
        return settings.MUSTER.remote_control != "off"

    def create(self, worker: Any) -> None:
        register = control.Panel.data
        register["active_queues"] = active_queues
        if settings.MUSTER.remote_control == "inspect":
            aliases = {control.Panel.meta[name].alias for name in INSPECTION}
            for name in register.keys() - INSPECTION - aliases:
                del register[name]
        log.info("remote control", allows=settings.MUSTER.remote_control)
