"""The hub of one process: its visible tabs, and the topics that each has asked for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from orchestrator.console.live.pulse import Pulse

MOST_TABS = 1_000
LINGER_SECONDS = 10.0
"""The pulse goes on for so long after the last tab has left: it may only load another page."""


class Tab:
    """One stream."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.moved: dict[str, int] = {}
        self.is_closed = False
        self._due = asyncio.Event()

    def put(self, topics: Collection[str], version: int) -> None:
        if mine := self.topics.intersection(topics):
            self.moved |= dict.fromkeys(mine, version)
            self._due.set()

    def close(self) -> None:
        self.is_closed = True
        self._due.set()

    async def take(self, *, within_seconds: float) -> dict[str, int]:
        """Wait for topics that moved; returns the last version of each, or none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._due.wait()
        self._due.clear()
        moved, self.moved = self.moved, {}
        return moved


class Hub:
    """Used in the event loop; only `followed` and `close_soon` may be called anywhere."""

    def __init__(self) -> None:
        self.tabs: set[Tab] = set()
        self.version = 0
        self._pulse: Pulse | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        return len(self.tabs) >= MOST_TABS

    def join(self, topics: frozenset[str]) -> Tab:
        self._loop = asyncio.get_running_loop()
        tab = Tab(topics)
        # a row that others follow may have moved between the page of this tab and now; of one that
        # nobody has followed the pulse says so
        tab.put([topic for topic in self.followed() if ":" in topic], self.version)
        with self._lock:
            self.tabs.add(tab)
            if self._pulse is None:
                self._pulse = Pulse(
                    followed=self.followed, publish=self._in_loop, is_wanted=self._is_wanted,
                    lost=self._lost,
                )  # fmt: skip
                self._pulse.start()
        return tab

    def followed(self) -> frozenset[str]:
        """The topics of all tabs."""
        with self._lock:
            return frozenset().union(*(tab.topics for tab in self.tabs))

    def leave(self, tab: Tab) -> None:
        with self._lock:
            self.tabs.discard(tab)
        self._left_at = time.monotonic()

    def publish(self, moved: Collection[str]) -> None:
        self.version += 1
        for tab in self.tabs:
            tab.put(moved, self.version)

    def close(self) -> None:
        """Let all tabs go: the server stops, or the database is away. They come back."""
        for tab in self.tabs:
            tab.close()

    def close_soon(self) -> None:
        """Do as `close`; called from a thread, or by the handler of a signal."""
        self._call(self.close)

    # --- from the pulse's thread -----------------------------------------------------------------

    def _is_wanted(self) -> bool:
        with self._lock:  # a tab that joins now gets this pulse, or a new one
            is_wanted = bool(self.tabs) or time.monotonic() - self._left_at < LINGER_SECONDS
            if not is_wanted:
                self._pulse = None
        return is_wanted

    def _lost(self) -> None:
        with self._lock:
            self._pulse = None
        self.close_soon()

    def _in_loop(self, moved: Collection[str]) -> None:
        if moved:
            self._call(lambda: self.publish(moved))

    def _call(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(call)


hub = Hub()
"""Of this process."""
