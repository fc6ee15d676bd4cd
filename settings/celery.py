"""The Celery application: `celery -A settings worker|beat|inspect|events` works as anywhere."""

from __future__ import annotations

import os

from celery import Celery, signals

from settings import logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
# Celery would run every check of Django, for which it loads the whole API, and look at no result
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

# queues come from the topology and nowhere else, also for `-Q` on a plain worker
app = Celery(
    "muster",
    amqp="tasks.queues:TopologyAMQP",
    include=["tasks.app_parts", "tasks.executions", "tasks.maintenance"],
)
app.config_from_object("settings.celery_config")

# steps join in by what a process consumes: a worker's queue, or the executor's
app.steps["worker"].update(
    {
        "tasks.batch_scheduler:SchedulerStep",
        "tasks.watchdog:WatchdogStep",
        "workers.bootsteps:AgentStep",
        "workers.bootsteps:SignalStep",
    }
)
app.steps["consumer"].update({"tasks.unreadable:RejectStep", "workers.bootsteps:CancelStep"})


@signals.setup_logging.connect
def _keep_our_logging(loglevel: int | str | None = None, **_: object) -> None:
    """Celery configures logging only where nobody answers this signal."""
    logs.set_level(loglevel)
