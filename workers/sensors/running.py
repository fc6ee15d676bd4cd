"""One life of a pack's sensor: its lines are recorded, then acknowledged.

Lines are read only while there is room for them: if the database is away, the pipe fills, and the
sensor waits. Nothing is lost, and nothing grows.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import IO

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connections

from orchestrator.automation.models import Assignment
from orchestrator.automation.sensors.reports import CURSOR_BYTES
from workers import processes
from workers.runtimes import work_dirs
from workers.sensors import launching, lines
from workers.sensors.children import Child
from workers.sensors.launching import GRACE_SECONDS
from workers.sensors.lives import READY_SECONDS, Failed, Life, Order

ALIVE_SECONDS = 60.0
"""A sensor that is silent for so long is ended, if its definition does not say otherwise."""
LONGEST_WAIT_SECONDS = 1.0
LAST_SECONDS = 2.0
"""From the end of its output to that of the process."""
IDLE_SECONDS = 5.0
"""After so long without a line the connection to the database is given back."""
KEYS_SECONDS = 10.0
"""The time between two looks whether the sensor's keys have changed."""


class SensorLife(Life):
    """A child process, and what comes through its pipes."""

    has_process = True

    def __init__(self, row: Assignment, *, actor: str) -> None:
        super().__init__(row, actor=actor)
        self.buffer = lines.Buffer(_longest_line())
        self.batch = lines.Batch()
        self.try_at = 0.0
        self.has_output, self.has_journal = True, True
        self.heard_at = self.used_at = time.monotonic()
        self.configuration = b""
        self.kept_keys = launching.keys_of(row.sensor)
        self.keys: dict[str, str] = {}
        self.keys_at = 0.0
        self.child_began_at: float | None = None
        self.silent_since: float | None = None
        self.is_to_configure = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._waking = threading.Lock()

    def wake(self) -> None:
        with self._waking, contextlib.suppress(OSError):
            os.write(self._waker, b"!")

    def reconfigure(self) -> None:
        self.is_to_configure = True
        self.wake()

    def live(self) -> None:
        mark = f"{self.lease.sensor.ref}:{self.lease.fence}"
        try:
            with work_dirs.made(f"sensor-{self.lease.sensor.ref}", self.lease.fence) as work_dir:
                self._open_keys()
                launch = launching.prepare(self.lease.sensor, mark, work_dir)
                child = Child(launch, mark, work_dir)
                self.child_began_at = time.monotonic()
                self._accompany(child)
        except OSError as error:
            raise Failed(f"it could not be started: {error}") from None
        finally:
            processes.kill_sensor(mark)
            self._close_pipe()

    @property
    def lived_seconds(self) -> float:
        """From the start of its process to its end, or to the last line of one that fell silent.
        Preparations are no life: they may take minutes, and fail each time."""
        if self.child_began_at is None:
            return 0.0
        until = time.monotonic() if self.silent_since is None else self.silent_since
        return max(until - self.child_began_at, 0.0)

    def _open_keys(self) -> None:
        """Open the keys, or see that they are the same. Raises CannotStart."""
        opened = launching.open_keys(self.kept_keys, self.lease.sensor.keys)
        self.keys_at = time.monotonic() + KEYS_SECONDS
        if opened != self.keys:
            # what it was given before, it may still write
            self.journal.mask([*self.keys.values(), *opened.values()])
            self.keys, self.is_to_configure = opened, True

    def _close_pipe(self) -> None:
        with self._waking:
            os.close(self._woken)
            os.close(self._waker)
            self._woken = self._waker = -1  # another file may get their numbers

    def _accompany(self, child: Child) -> None:
        """Follow the child to its end. Raises Failed and LeaseLost."""
        try:
            self._configure(child)
            self.heard_at = time.monotonic()
            while self.order == Order.GO_ON and self.has_output:
                self._turn(child)
            if self.order == Order.STOP:
                self._take_last_lines(child)
            elif self.order == Order.GO_ON:
                self._take_rest(child)
                child.wait(LAST_SECONDS)
        finally:
            child.kill()
        if self.order == Order.GO_ON:
            raise Failed(child.why)

    def _turn(self, child: Child) -> None:
        """Wait for something, and deal with all that is there."""
        ready = child.wait_readable(self._streams(child), self._wait_seconds(), self._woken)
        if self.is_to_configure:
            self.is_to_configure = False
            self._configure(child)
        child.flush()
        if child.stderr in ready:
            self._read_journal(child)
        if child.stdout in ready:
            self._read_lines(child)
        self._settle(child)
        self.journal.write()
        self._look_after(time.monotonic())
        self._look_after_keys()

    def _streams(self, child: Child) -> list[IO[bytes]]:
        """The streams that are read now: no more lines while some wait to be recorded."""
        streams = [child.stderr] if self.has_journal else []
        return [*streams, child.stdout] if not self._waits else streams

    @property
    def _waits(self) -> bool:
        return self.batch.lines > 0

    def _wait_seconds(self) -> float:
        left = self.try_at - time.monotonic() if self._waits else LONGEST_WAIT_SECONDS
        return min(max(left, 0.0), LONGEST_WAIT_SECONDS)

    def _read_journal(self, child: Child) -> None:
        content = child.read(child.stderr)
        if content:
            self.journal.feed(content)
        self.has_journal = content != b""

    def _read_lines(self, child: Child) -> None:
        content = child.read(child.stdout)
        if content:
            self.heard_at = time.monotonic()
            self.buffer.feed(content)
            self.batch = self.buffer.take()
        self.has_output = content != b""

    def _settle(self, child: Child) -> None:
        """Record the lines that wait, batch by batch, and acknowledge them. Raises LeaseLost."""
        while self._waits and time.monotonic() >= self.try_at and self.order != Order.KILL:
            if not self._record():
                self.try_at = time.monotonic() + self.next_pause()
                return
            if self.batch.number is not None:
                child.send("ack", lines.acknowledged(self.batch.number))
            self.batch = self.buffer.take()
            # only what could be read counts as silence
            self.heard_at = self.used_at = time.monotonic()
            self.note_ready()

    def _record(self) -> bool:
        batch = self.batch
        if not batch.has_content:
            return True
        recorded = self.record(batch.reports, cursor=batch.cursor, refused=len(batch.faults))
        if recorded:
            for fault in batch.faults:
                self.journal.note(f"refused: {fault}")
        return recorded

    def _look_after(self, now: float) -> None:
        """End it if it is silent; give the connection back if it is idle."""
        longest = self.lease.sensor.options.get("alive_seconds", ALIVE_SECONDS)
        if not self._waits and now - self.heard_at > longest:
            self.silent_since = self.heard_at
            raise Failed(f"it has been silent for {longest:g} s")
        if self.lived_seconds > READY_SECONDS:
            self.note_ready()
        if now - self.used_at > IDLE_SECONDS:
            connections.close_all()
            self.used_at = now

    def _look_after_keys(self) -> None:
        """Tell it when one of its keys has changed; end it when it may not have one any more."""
        if not self.lease.sensor.keys or time.monotonic() < self.keys_at:
            return
        try:
            self._open_keys()
        except DatabaseError:
            connections.close_all()
            self.keys_at = time.monotonic() + KEYS_SECONDS

    def _take_rest(self, child: Child) -> None:
        """Record what a sensor that ended had written, however long the database is away."""
        while self._waits and self.order == Order.GO_ON:
            self._settle(child)
            if self._waits:
                self.told.wait(self._wait_seconds())

    def _take_last_lines(self, child: Child) -> None:
        """Ask it to end, and record what it writes until then."""
        child.terminate()
        until = time.monotonic() + GRACE_SECONDS
        while (self.has_output or self._waits) and time.monotonic() < until:
            self._turn(child)

    def _configure(self, child: Child) -> None:
        """Say what to watch, if that has changed. Without the database, the last word stays."""
        sensor = self.lease.sensor
        try:
            watched = launching.watched_triggers(sensor)
        except DatabaseError:
            connections.close_all()
            self.is_to_configure = True
            if self.configuration:
                return
            raise Failed("the database did not answer at its start") from None
        line = lines.configure(
            sensor=sensor.ref,
            triggers=watched,
            keys=self.keys,
            cursor=self.cursor,
            parameters=sensor.options.get("parameters", {}),
        )
        known = lines.configure(triggers=watched, keys=self.keys)
        if known != self.configuration:
            self.configuration = known
            child.send("configure", line)


def _longest_line() -> int:
    """An event and a cursor, with escapes and blanks between."""
    return 2 * settings.MUSTER.event_limit_bytes + CURSOR_BYTES + 65_536
