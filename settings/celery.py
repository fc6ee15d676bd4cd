"""The Celery application: `celery -A settings worker|beat|inspect|events` works as usual."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import click
from celery import Celery, signals
from django.conf import settings

from settings import logs, variables

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
# Celery would run all checks of Django, which loads the whole API, and ignore the results
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

# Celery's commands would print a traceback
with variables.refused_in_one_line():
    _ = settings.BROKER_URL


class Application(Celery):
    @cached_property
    def Beat(self) -> Any:  # noqa: N802 - Celery's name
        """Celery's beat, without a banner among lines for machines."""
        own: Any = self.subclass_with_self
        beat = own("celery.apps.beat:Beat")
        return lambda **options: beat(**options | ({"quiet": True} if settings.LOG_AS_JSON else {}))


# queues come only from the topology, also for `-Q` on a plain worker
app = Application(
    "muster",
    amqp="tasks.queues:TopologyAMQP",
    include=["tasks.app_parts", "tasks.executions", "tasks.maintenance"],
)
app.config_from_object("settings.celery_config")

# a step is active depending on the queues that a process consumes: a worker's, or the executor's
app.steps["worker"].update(
    {
        "tasks.batch_scheduler:SchedulerStep",
        "tasks.gates:GateStep",
        "tasks.plain_worker:MaintenanceOnlyStep",
        "tasks.remote_control:RemoteControlStep",
        "tasks.watchdog:WatchdogStep",
        "workers.bootsteps:AgentStep",
        "workers.bootsteps:SignalStep",
    }
)
app.user_options["worker"].add(
    click.Option(
        ["--replace"],
        is_flag=True,
        help="with -Q worker.7.executions: take the place of a process of this host that is this "
        "worker; what it runs is lost",
    )
)
app.steps["consumer"].update({"tasks.unreadable:RejectStep", "workers.bootsteps:CancelStep"})


@signals.setup_logging.connect
def _keep_our_logging(loglevel: int | str | None = None, **_: object) -> None:
    """Answer this signal, so that Celery does not configure logging itself."""
    logs.set_level(loglevel)
