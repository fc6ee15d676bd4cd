"""A hub that follows what changes, in the event loop of its process.

It begins with the first client, or at once in a notifier, and ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import structlog

from orchestrator.notifications import metrics
from orchestrator.notifications.following import Follower
from orchestrator.notifications.notification import Notification
from workers.notifier import credentials
from workers.notifier.hub import Hub

T = TypeVar("T")

log = structlog.get_logger(__name__)

THREADS = 4
FIRST_READ_SECONDS = 3.0
STOP_SECONDS = 3.0


class Service:
    """One for each process."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.follower: Follower | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="muster-stream")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking: asyncio.Task[None] | None = None

    def live_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self) -> None:
        """Follow from now on, if it does not yet. Called in the loop."""
        if self.follower is not None:
            return
        self.live_in(asyncio.get_running_loop())
        self.follower = Follower(
            name=f"{socket.gethostname()}:{os.getpid()}",
            deliver=self._deliver,
            clients=lambda: self.hub.wanted,
            lost=lambda: self._in_loop(self._begin_again),
            renewed=self._count,
        )
        self.follower.start()
        self._asking = asyncio.create_task(self._ask_again_and_again())

    async def ready(self) -> None:
        """Wait until what changes from now on will be told; not for long, as the database may be
        away, which the first read notices."""
        assert self.follower is not None
        until = time.monotonic() + FIRST_READ_SECONDS
        self.follower.wake()
        while not self.follower.is_following.is_set() and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def run(self, call: Callable[[], T]) -> T:
        """Call it in a thread: it asks the database."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self, why: str = "the server stops") -> None:
        """Let the clients go, and end. Called in the loop."""
        self.hub.close(why)
        if self._asking is not None:
            self._asking.cancel()
        if self.follower is not None:
            self.follower.stop()

    def close_soon(self) -> None:
        """Do as `close`; called anywhere, also by a handler of a signal."""
        self._in_loop(self.close)

    async def closed(self) -> None:
        """Wait until the follower has said that nobody listens any more."""
        follower = self.follower
        if follower is not None:
            await asyncio.to_thread(follower.join, STOP_SECONDS)

    # --- from the follower's thread --------------------------------------------------------------

    def _deliver(self, told: Sequence[Notification]) -> None:
        self._in_loop(lambda: self.hub.publish(told))

    def _in_loop(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(call)

    def _begin_again(self) -> None:
        """Begin again: what came while nobody followed, or could not be read, is not known."""
        if self.hub.seq:
            self.hub.begin()
        self.hub.miss_all()

    def _count(self, now: datetime) -> None:
        sent, gaps = self.hub.taken_counts()
        if sent:
            metrics.SENT.add({"": sent})
        if gaps:
            metrics.GAPS.add({"": gaps})

    # --- grants ----------------------------------------------------------------------------------

    async def _ask_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(credentials.ASKED_EVERY_SECONDS)
            known = self.hub.credentials.all()
            answers = await asyncio.gather(
                *(self.run(each.ask_again) for each in known), return_exceptions=True
            )
            for each in answers:
                if isinstance(each, Exception):
                    # its clients get nothing until it is known what they may see
                    log.error("a client's grants are not known", exc_info=each)
            self.hub.close_refused()
