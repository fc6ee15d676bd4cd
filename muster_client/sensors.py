"""Sensors in Python: programs that watch something and report events to Muster.

    class Queue(Sensor):
        every_seconds = 5

        def poll(self):
            for order in fetch_since(self.cursor.get("last", 0)):
                self.send("shop.order", order, key=str(order["id"]), cursor={"last": order["id"]})

Muster starts the class in a process of its own, keeps what `cursor` says together with the events,
and gives it back at the next start. `send` returns before the event is recorded, and waits while a
thousand are not: what is not recorded when the process ends comes again, and equal keys are the
same event. Standard error is the sensor's log; `print` goes there, too.

Imports the standard library only, of Python 3.8 or newer: the pack's interpreter runs it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Dict

MOST_UNACKNOWLEDGED = 1_000
ALIVE_SECONDS = 5.0

Json = Dict[str, Any]


class Stopped(BaseException):
    """Muster has told the sensor to end. Not an Exception: `except Exception` must not swallow
    it."""


class Channel:
    """The lines to and from the service."""

    def __init__(self, incoming: BinaryIO, outgoing: int) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.configuration: Json = {}
        self.stopping = threading.Event()
        self.on_change: Callable[[Json], None] | None = None
        """Called in the thread that reads, when rules have changed what is to be watched. What it
        raises ends the process."""
        self._changed = threading.Condition()
        self._number = self._acknowledged = 0
        self._is_writing = False

    @classmethod
    def take_standard_streams(cls) -> Channel:
        """Keep the standard streams for the protocol; what is printed goes to standard error."""
        incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        return cls(incoming, outgoing)

    def start(self) -> Json:
        """Read what is to be watched, and go on reading in a thread."""
        self._take(self.incoming.readline())
        threading.Thread(target=self._read, name="muster", daemon=True).start()
        return self.configuration

    def send(self, line: Json) -> None:
        """Send an event, a cursor, or both; waits while too much is not recorded yet."""
        with self._changed:
            while self._number - self._acknowledged >= MOST_UNACKNOWLEDGED:
                self._require_going_on()
                self._changed.wait(ALIVE_SECONDS)
            self._require_going_on()
            self._number += 1
            self._write({"n": self._number, **line})

    def alive(self) -> None:
        """Say that the sensor lives, although it has nothing to report."""
        with self._changed:
            self._write({"alive": True})

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until all that was sent is recorded; False if it is not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._acknowledged >= self._number, timeout)

    def stop(self) -> None:
        """End the sensor, but in the middle of no line."""
        self.stopping.set()
        if not self._is_writing:
            raise Stopped

    def _require_going_on(self) -> None:
        if self.stopping.is_set():
            raise Stopped

    def _write(self, line: Json) -> None:
        content = json.dumps(line, allow_nan=False).encode() + b"\n"
        self._is_writing = True
        try:
            while content:
                content = content[os.write(self.outgoing, content) :]
        finally:
            self._is_writing = False

    def _read(self) -> None:
        is_over = False
        try:
            for line in self.incoming:
                self._take(line)
            is_over = True
        finally:
            if not is_over:
                # a sensor that hears nothing more would wait for ever for what is recorded
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        self.stopping.set()  # the service is gone
        with self._changed:
            self._changed.notify_all()

    def _take(self, line: bytes) -> None:
        said = json.loads(line) if line.strip() else {}
        if "configure" in said:
            self.configuration = said["configure"]
            if self.on_change is not None:
                self.on_change(self.configuration)
        if "ack" in said:
            with self._changed:
                self._acknowledged = max(self._acknowledged, said["ack"])
                self._changed.notify_all()


class Sensor:
    """A sensor: define `poll`, or `run` for one that waits for something itself."""

    every_seconds: float = 30.0
    """The pause between two polls."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.cursor: Json = dict(channel.configuration.get("cursor") or {})
        """The position that it has reached: what was sent last with `cursor=`, or recorded before
        its start."""

    def setup(self) -> None:
        """Prepare; called once."""

    def poll(self) -> None:
        """Look once, and `send` what is new."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `poll` nor `run`")

    def cleanup(self) -> None:
        """Tidy up; called in the end, also after SIGTERM."""

    def run(self) -> None:
        """Poll until Muster says that it is enough."""
        while True:
            self.poll()
            self.wait(self.every_seconds)

    @property
    def triggers(self) -> list[Json]:
        """The triggers that enabled rules wait for: `id`, `type` and `parameters` of each. Changes
        while the sensor runs."""
        return list(self._channel.configuration.get("triggers") or [])

    @property
    def parameters(self) -> Json:
        """The parameters in its definition."""
        return dict(self._channel.configuration.get("parameters") or {})

    def key(self, reference: str) -> str:
        """The value of a key that its definition names, such as `billing/stripe`."""
        value: str = self._channel.configuration["keys"][reference]
        return value

    def send(
        self,
        trigger: str | int,
        payload: Mapping[str, Any],
        *,
        key: str | None = None,
        occurred_at: str | None = None,
        cursor: Mapping[str, Any] | None = None,
    ) -> None:
        """Report an event of a trigger type, or of the trigger with this number.

        `key`: two reports of the trigger with the same key are the same event. `cursor`: how far
        the sensor has come with it; it is kept if and only if the event is recorded.
        """
        event: Json = {"trigger": trigger, "payload": dict(payload)}
        if key is not None:
            event["key"] = key
        if occurred_at is not None:
            event["occurred_at"] = occurred_at
        line: Json = {"event": event}
        if cursor is not None:
            line["cursor"] = self.cursor = dict(cursor)
        self._channel.send(line)

    def save(self, cursor: Mapping[str, Any]) -> None:
        """Keep a cursor without an event."""
        self.cursor = dict(cursor)
        self._channel.send({"cursor": self.cursor})

    def alive(self) -> None:
        """Say that it lives: one that is silent for `alive_seconds` is ended. `wait` says so."""
        self._channel.alive()

    def wait(self, seconds: float) -> None:
        """Wait, and say now and then that it lives."""
        until = time.monotonic() + seconds
        while True:
            self.alive()
            left = until - time.monotonic()
            if self._channel.stopping.wait(max(min(left, ALIVE_SECONDS), 0)):
                raise Stopped
            if left <= ALIVE_SECONDS:
                return


def run(make: Callable[[Channel], Sensor], channel: Channel) -> None:
    """Run a sensor to its end, once it was told what to watch."""
    signal.signal(signal.SIGTERM, lambda *_: channel.stop())
    channel.start()
    sensor = make(channel)
    try:
        sensor.setup()
        sensor.run()
        channel.settle()
    except Stopped:
        pass
    finally:
        sensor.cleanup()
        sys.stderr.flush()
