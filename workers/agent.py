"""One life of a worker: its parts, and its registration."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from importlib import metadata

import structlog
from amqp.exceptions import AccessRefused, NotFound
from django.conf import settings
from django.db import connections

from orchestrator.core import (
    brokers,
    clock,
    database,
    declarations,
    fleet,
    isolation,
    topology,
)
from orchestrator.core.steady_clock import seconds_counted
from workers import processes, runtimes
from workers.admission import Admission
from workers.canceller import Canceller
from workers.code import CodeWatch
from workers.database_threads import Claimer, Finisher
from workers.departure import Departure
from workers.desk import Desk
from workers.heartbeat import Heartbeat
from workers.live_output import LiveOutput
from workers.loop import Loop
from workers.pauses import Pauses
from workers.probes import Prober
from workers.releases import Releases
from workers.returns import Returns
from workers.runtimes import container, work_dirs

log = structlog.get_logger(__name__)


class Agent:
    """The parts that make a Celery worker process one of Muster's workers."""

    def __init__(
        self, *, worker_id: int, capacity: int, pool_kind: str, replaces: bool = False
    ) -> None:
        self.worker_id = worker_id
        self.capacity = capacity
        self.pool_kind = pool_kind
        self.replaces = replaces
        """True if it may end the life that another process leads on this machine."""
        self.may_vanish = True
        """True while nothing of this life is written anywhere: it may end without a trace."""
        self.is_stopping = False
        self.stops = threading.Event()
        """Set after `is_stopping`, for threads that wait meanwhile."""
        self.incarnation = 0
        self.name = ""
        self.loop = Loop(self)
        self.desk = Desk(self)
        self.claimer = Claimer(self)
        self.live_output = LiveOutput(self)
        self.finisher = Finisher(self)
        self.canceller = Canceller(self)
        self.heartbeat = Heartbeat(self)
        self.releases = Releases(self)
        self.code = CodeWatch(self)
        self.pauses = Pauses(self)
        self.admission = Admission(self)
        self.returns = Returns(self)
        self.departure = Departure(self)

    def register(self) -> None:
        """Begin a new life: declare the queues, then register, before the pool forks.

        In this order: messages for a known worker without a queue would get lost. It gets no work
        before it consumes, see `Admission`: until then it may not even notice a request to stop.
        Raises SystemExit if another process of this machine is this worker.
        """
        _declare(self.worker_id)
        database.wait_until_reachable()
        offered, missing_code = runtimes.offered(), self.code.survey()
        self.may_vanish = False
        asked_at = seconds_counted()
        try:
            worker = fleet.register(
                worker_id=self.worker_id,
                capacity=self.capacity,
                runtimes=offered,
                isolation=isolation.of_processes(),
                host=socket.gethostname(),
                pid=os.getpid(),
                version=_celery_version(),
                is_ready=False,
                missing_code=missing_code,
                replaces=self.replaces,
                now=clock.now(),
            )
        except fleet.WorkerRuns as error:
            raise SystemExit(str(error)) from None
        self.name, self.incarnation = worker.name, worker.incarnation
        # processes that a killed earlier life left behind must not overlap with this one
        earlier = self._token(self.incarnation - 1)
        processes.kill_all(earlier)
        container.remove_left(earlier)
        work_dirs.remove_left()
        if os.geteuid() == 0 and not settings.MUSTER.action_user:
            log.warning("this worker is root, and so are its actions: set MUSTER_ACTION_USER")
        # inherited by pool children and their actions, so that all of them can be found again
        os.environ[processes.WORKER_TOKEN] = self._token(self.incarnation)
        self.heartbeat.begin(asked_at)
        # a connection must not be shared with the children
        connections.close_all()

    def _token(self, incarnation: int) -> str:
        """The unique name of one life of one worker on this machine."""
        return f"{database.fingerprint()}.{self.worker_id}.{incarnation}"

    def start(self) -> None:
        """Start the threads: after the fork, so that no child inherits half a thread."""
        self.live_output.start()
        self.finisher.start()
        self.claimer.start()
        self.heartbeat.start()
        self.releases.start()
        Prober(self).start()
        self.pauses.start()
        self.departure.start()


def _declare(worker_id: int) -> None:
    """Declare the dead letter exchange and queue, and this worker's queues. Raises SystemExit if
    the broker has one of them with other arguments."""
    while True:
        try:
            with brokers.connection() as link:
                declarations.declare(link, topology.worker_queues(worker_id))
                with contextlib.suppress(AccessRefused):  # they are not of its user
                    topology.unbind_former(link.default_channel, worker_id)
            return
        except declarations.TopologyDiffers as differs:
            raise SystemExit(str(differs)) from None
        except (AccessRefused, NotFound) as error:
            log.warning("waiting for an executor to declare what is missing", error=repr(error))
            time.sleep(1)
        except brokers.errors() as error:
            log.warning("broker not reachable, trying again", error=brokers.explain(error))
            time.sleep(1)


def _celery_version() -> str:
    return metadata.version("celery")
