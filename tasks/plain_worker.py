"""A Celery worker process that was started without `-Q`: what it does, and does not."""

from __future__ import annotations

from typing import Any

import structlog
from celery import bootsteps

from orchestrator.core import topology

log = structlog.get_logger(__name__)


class MaintenanceOnlyStep(bootsteps.StartStopStep):
    """Says at the start that this process is neither an executor nor a worker.

    `celery -A settings worker` consumes the default queue alone, as Celery's users expect. It does
    a part of what an executor does, and executions wait all the same.
    """

    # it takes an executor's queues away from Celery's consumer
    requires = ("tasks.batch_scheduler:SchedulerStep",)

    def include_if(self, worker: Any) -> bool:
        names = worker.app.amqp.queues.consume_from
        is_worker = any(topology.worker_id_of(name) is not None for name in names)
        is_executor = hasattr(worker, "queues_beside")
        return not (is_worker or is_executor)

    def start(self, worker: Any) -> None:
        log.warning(
            "this process runs what beat schedules; it schedules no execution and runs no action",
            queues=sorted(worker.app.amqp.queues.consume_from),
            instead="manage.py executor; manage.py worker --name NAME",
        )
