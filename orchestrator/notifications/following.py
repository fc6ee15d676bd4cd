"""Following what changes: a thread that gives notifications to `deliver`, in the order it finds
them.

Three things wake it: messages of other processes, the database's notifications, and a clock, as
either of the others may be silent. Whatever woke it, it reads the tables, and finds a change once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections, connection, connections

from orchestrator.core import clock, outages
from orchestrator.notifications import demand
from orchestrator.notifications.hearing import Hearing
from orchestrator.notifications.listening import Listening
from orchestrator.notifications.notification import Notification
from orchestrator.notifications.reading import LOOK_FOR_MISSING_SECONDS, Reader

log = outages.get_logger(__name__)

SILENCE_SECONDS = {"postgresql": 2.0, "sqlite": 0.5}
"""After so long without a word, tables are read all the same."""
PAUSE_SECONDS = 0.02
"""The least time between two reads: changes in between are read together."""
PAUSE_AFTER_ERROR_SECONDS = 0.5
IDLE_SECONDS = 0.1
"""Until it is seen that the first client has come."""
RENEW_SECONDS = 1.0
MOST_MESSAGES = 20_000

Deliver = Callable[[Sequence[Notification]], None]


class Follower:
    """Follows until `stop`.

    `clients` says how many wait: while none does, nothing is read, and no process publishes.
    `lost` is called when changes may have been missed, before what comes after them; `renewed`
    about once a second.
    """

    def __init__(
        self,
        *,
        name: str,
        deliver: Deliver,
        clients: Callable[[], int],
        lost: Callable[[], None] = lambda: None,
        renewed: Callable[[datetime], None] | None = None,
    ) -> None:
        self.name, self.deliver, self.clients, self.lost = name, deliver, clients, lost
        self.renewed = renewed
        self._reader = Reader()
        self.stopping = threading.Event()
        self.is_following = threading.Event()
        """Set once it is known from where on it follows."""
        self.read_at = float("-inf")
        """The time at which the tables were last read, by the monotonic clock."""
        self.lag_ms = 0
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._histories: set[str] = set()
        self._messages: list[dict[str, Any]] = []
        self._has_dropped = False
        self._renewed_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="muster-following", daemon=True)
        self._hearing = Hearing(name=name, take=self._take, stopping=self.stopping)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End soon; `join` waits for it."""
        self.stopping.set()
        self._woken.set()

    def join(self, timeout_seconds: float) -> None:
        self._thread.join(timeout_seconds)

    def wake(self) -> None:
        self._woken.set()

    @property
    def problem(self) -> str:
        return self._hearing.problem

    def _take(self, message: dict[str, Any]) -> None:
        with self._lock:
            if not message.get("ids"):
                self._histories.add(message["entity"])
            elif len(self._messages) < MOST_MESSAGES:
                self._messages.append(message)
            else:
                self._has_dropped = True
        self._woken.set()

    def _run(self) -> None:
        self._hearing.start()
        if connection.vendor == "postgresql":
            Listening(wake=self.wake, stopping=self.stopping).start()
        while not self.stopping.is_set():
            silent = not self._woken.wait(self._patience_seconds())
            self._woken.clear()
            try:
                close_old_connections()
                self._look(silent=silent)
            except (DatabaseError, InterfaceError):
                log.exception("changes not read, trying again")
                connections.close_all()
                self.stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
            except Exception:
                # a thread that ended would leave its clients waiting: what it cannot read is passed
                # over, and they are told that they missed something
                log.exception("changes not understood, going on behind them")
                self.is_following.clear()
                self.stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
            self.stopping.wait(PAUSE_SECONDS)
        self._leave()

    def _patience_seconds(self) -> float:
        if not self.is_following.is_set():
            return IDLE_SECONDS
        if self._reader.is_lacking:
            return LOOK_FOR_MISSING_SECONDS
        return SILENCE_SECONDS[connection.vendor]

    def _look(self, *, silent: bool) -> None:
        """Begin or end following, as clients come and go; read what changed."""
        clients = self.clients()
        if clients and not self.is_following.is_set():
            self._begin()
            # only now: who sees its row may rely on being told whatever comes then
            self._renew(clients)
            self.is_following.set()
        elif self.is_following.is_set() and not clients:
            self._renew(clients)
            self.is_following.clear()
        elif time.monotonic() - self._renewed_at > RENEW_SECONDS:
            self._renew(clients)
        if clients:
            self._read(silent=silent)

    def _begin(self) -> None:
        self._swap()
        self.lost()
        self._reader.begin()

    def _renew(self, clients: int) -> None:
        now = clock.now()
        demand.renew(
            name=self.name, clients=clients, lag_ms=self.lag_ms, problem=self.problem, now=now
        )
        if self.renewed is not None:
            self.renewed(now)
        self._renewed_at = time.monotonic()

    def _read(self, *, silent: bool) -> None:
        histories, messages = self._swap()
        if silent or self._reader.is_lacking:
            histories = set(self._reader.histories)
        try:
            told = self._reader.read(histories, messages)
        except Exception:
            self._put_back(histories, messages)
            raise
        self.read_at = time.monotonic()
        if self._reader.take_dropped() or self._take_dropped():
            self.lost()
        if told:
            # what was read together came from several tables
            told.sort(key=lambda each: each.at)
            age = clock.now() - told[-1].at
            self.lag_ms = max(0, round(age.total_seconds() * 1000))
            self.deliver(told)
        if self._reader.has_more:
            self._take_all(histories)

    def _swap(self) -> tuple[set[str], list[dict[str, Any]]]:
        with self._lock:
            taken = self._histories, self._messages
            self._histories, self._messages = set(), []
        return taken

    def _put_back(self, histories: Collection[str], messages: list[dict[str, Any]]) -> None:
        """They were not read."""
        with self._lock:
            self._histories.update(histories)
            self._messages = [*messages, *self._messages]

    def _take_dropped(self) -> bool:
        """Return True if more messages came than are kept, since the last call."""
        with self._lock:
            has_dropped, self._has_dropped = self._has_dropped, False
        return has_dropped

    def _take_all(self, histories: Collection[str]) -> None:
        """There is more than one read takes: go on at once."""
        with self._lock:
            self._histories.update(histories)
        self._woken.set()

    def _leave(self) -> None:
        try:
            demand.leave(name=self.name, now=clock.now())
        except (DatabaseError, InterfaceError) as error:
            log.info("left without a word", error=repr(error))
        connections.close_all()
