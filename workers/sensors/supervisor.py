"""The supervisor of the sensors of this service: a thread that looks each second.

Each look renews what is ours, ends what is not ours any more or is to end, takes what others lost
or nobody has, and starts it. A service that was frozen sees at its first look what others have
taken meanwhile.
While the database is away nobody can take anything: the sensors go on, and wait with full pipes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from django.db import Error as DatabaseError
from django.db import connections

from orchestrator.automation import assigning
from orchestrator.automation.models import Assignment, Revision, Sensor, SensorService
from orchestrator.automation.models.sensors import POLL
from orchestrator.automation.sensors import assignments, services
from orchestrator.automation.states import AssignmentState
from orchestrator.core import clock, outages
from orchestrator.core.packs import fetching
from workers.sensors import launching
from workers.sensors.launching import GRACE_SECONDS
from workers.sensors.lives import Life, Order
from workers.sensors.polling import PollLife
from workers.sensors.running import SensorLife

log = outages.get_logger(__name__)

LOOK_SECONDS = 1.0
RENEWALS_PER_LEASE = 6
TIDY_SECONDS = 600.0
IDLE_SECONDS = 3_600.0
"""A release that nothing needs any more goes from this host after this time."""
STOP_SECONDS = GRACE_SECONDS + 5.0
"""The longest time that sensors have for their last lines when the service stops."""


class Supervisor:
    """The sensors of one service."""

    def __init__(self, name: str, labels: Mapping[str, str]) -> None:
        self.name, self.labels = name, labels
        self.actor = f"sensor:{name}"[:150]
        self.service: SensorService | None = None
        self.lives: dict[UUID, Life] = {}
        self._stamp: UUID | None = None
        self._renew_at = self._tidy_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all sensors, and leave them to others."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self.look()
                except Exception:  # whatever it is, the sensors are looked after again
                    log.exception("sensors not looked after, trying again")
                    connections.close_all()
                self._stopping.wait(LOOK_SECONDS)
            self._end_all()
        finally:
            connections.close_all()

    def look(self) -> None:
        """Bring what runs here in line with what is ours."""
        now = clock.now()
        if self.service is None:
            self.service = services.begin(self.name, labels=self.labels, now=now)
        held = self._held(self.service)
        self._end_lost(held)
        self._end_asked(self.service)
        self._start_again(held)
        assignments.release_overdue(now=now, actor=self.actor)
        busy = [id for id, life in self.lives.items() if life.has_process and life.is_alive()]
        for row in assignments.take(self.service, fits=self._fits, busy=busy, now=now):
            self._start(row)
        self._tell_of_changes()
        self._remove_old_releases()

    def _held(self, service: SensorService) -> dict[UUID, int]:
        """The fences of what is ours; renewed now and then."""
        if time.monotonic() < self._renew_at:
            held = Assignment.objects.held().filter(service=service)
            return dict(held.values_list("pk", "fence"))
        fences = services.renew(service, now=clock.now())
        self._renew_at = time.monotonic() + services.lease_seconds() / RENEWALS_PER_LEASE
        return fences

    def _end_lost(self, held: Mapping[UUID, int]) -> None:
        """End what another service has now, or nobody wants; forget what has ended."""
        for id, life in list(self.lives.items()):
            if not life.is_alive():
                del self.lives[id]
            elif held.get(id) != life.lease.fence and life.order != Order.KILL:
                log.info("sensor is not ours any more", sensor=life.lease.sensor.ref)
                life.tell(Order.KILL)

    def _end_asked(self, service: SensorService) -> None:
        """End what is to end, but let it say its last lines; leave it when it has."""
        for row in Assignment.objects.ending().filter(service=service):
            life = self.lives.get(row.pk)
            if life is None or not life.is_alive() or life.lease.fence != row.fence:
                assigning.ended(row, now=clock.now(), actor=self.actor)
            elif life.order == Order.GO_ON:
                log.info("sensor is asked to end", sensor=life.lease.sensor.ref)
                life.tell(Order.STOP)

    def _start_again(self, held: Mapping[UUID, int]) -> None:
        """Report what should run here and does not: its thread died."""
        idle = [id for id in held if id not in self.lives]
        if not idle:
            return
        runs = (AssignmentState.STARTING, AssignmentState.RUNNING)
        for row in Assignment.objects.filter(pk__in=idle, state__in=runs).with_sensor():
            if row.fence != held[row.pk]:
                continue
            lease = assignments.Lease(row.pk, row.fence, row.sensor)
            assignments.fail(
                lease, "its service was interrupted", lived=timedelta(0), now=clock.now(),
                actor=self.actor,
            )  # fmt: skip

    def _start(self, row: Assignment) -> None:
        before = self.lives.get(row.pk)
        if before is not None:
            # a poll, which may be in a fetch for a minute; the fence keeps it from writing anything
            before.tell(Order.KILL)
        kind = PollLife if row.sensor.runtime == POLL else SensorLife
        life: Life = kind(row, actor=self.actor)
        self.lives[row.pk] = life
        log.info("sensor starts", sensor=row.sensor.ref, fence=row.fence)
        life.start()

    def _fits(self, sensor: Sensor) -> bool:
        return launching.fits(sensor, self.labels)

    def _tell_of_changes(self) -> None:
        stamp = Revision.objects.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            for life in self.lives.values():
                life.reconfigure()

    def _remove_old_releases(self) -> None:
        """A host without a worker has nobody else who does."""
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_SECONDS
            fetching.remove_unneeded(idle_seconds=IDLE_SECONDS)

    def _end_all(self) -> None:
        lives = [life for life in self.lives.values() if life.is_alive()]
        for life in lives:
            life.tell(Order.STOP)
        until = time.monotonic() + STOP_SECONDS
        for life in lives:
            life.join(max(until - time.monotonic(), 0.0))
        if self.service is None:
            return
        try:
            leases = [life.lease for life in self.lives.values()]
            assignments.give_up(leases, now=clock.now(), actor=self.actor)
            services.end(self.service, now=clock.now())
        except DatabaseError as error:
            log.warning("leases not given up: they run out", error=repr(error)[:300])
