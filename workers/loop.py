"""A worker's part in its consumer's loop: what wakes it, its ticks, and whether it consumes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from celery.bootsteps import RUN  # type: ignore[attr-defined]
from django.conf import settings

from orchestrator.core.reasons import Reason
from workers import timers
from workers.host import Host

LONGEST_TICK_SECONDS = 1.0

LATE_SECONDS = 1.0
"""An attempt claimed but not started within this time is returned to the backlog."""


class Loop:
    """The consumer's loop, as the other parts of the worker use it.

    It may be away: before the first connection, and while a process ends.
    """

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.consumer: Any = None
        self.cancel_consumers: list[Any] = []
        self.is_paused = False
        self._ticked_at = time.monotonic()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def attach(self, consumer: Any) -> None:
        """Use this consumer, which came up for the first time or again: its loop is the one to
        wake."""
        self.consumer = consumer
        self.agent.desk.forget_waiting()
        self.agent.desk.pool = consumer.pool
        self._on_tick()
        if self.is_paused:  # Celery is about to consume
            consumer.hub.call_soon(self._heed_pause)

    def join(self, hub: Any) -> None:
        """Join the consumer's loop, which starts with or without a connection."""
        hub.add_reader(self._wake_reader, self._on_wake)
        hub.call_repeatedly(_tick_seconds(), self._on_tick)
        hub.call_repeatedly(timers.EVERY_SECONDS, timers.Timers(hub.timer).tidy)

    def call_soon(self, do: Callable[[], None]) -> None:
        """Call this soon in the consumer's loop, or at once if there is no loop any more."""
        if self.agent.is_stopping or self.consumer is None:
            do()
        else:
            self.consumer.hub.call_soon(do)

    def wake(self) -> None:
        """Let the consumer's loop look for work. From any thread."""
        with contextlib.suppress(BlockingIOError):  # enough wakes are waiting already
            os.write(self._wake_writer, b"\0")

    def _on_wake(self, *_: Any) -> None:
        try:
            os.read(self._wake_reader, 65_536)
        except BlockingIOError:
            return
        self.agent.desk.claim_waiting()

    def _on_tick(self) -> None:
        self._ticked_at = time.monotonic()
        if self.agent.heartbeat.is_overdue:
            self.agent.departure.die("its heartbeat could not be renewed")
        if self.consumer is None:
            return
        self._adapt_prefetch()  # while it is known what is held
        self.agent.desk.ask_again_for_held()
        if late := self.agent.desk.take_back(older_than_seconds=LATE_SECONDS):
            self.agent.returns.give_back_soon(late, Reason.GIVEN_BACK)
        # Celery may miss the end of a child that was killed, and looks again only in five seconds
        self.agent.desk.pool.maintain_pool()
        # for a wake that came while there was no loop
        self.agent.desk.claim_waiting()

    def _adapt_prefetch(self) -> None:
        """Let the broker send early what will be claimed within a tenth of a second.

        The TTL does not apply to delivered messages, so a slow worker gets few. Attempts that wait
        for a row of another transaction must not keep the others away.
        """
        desk = self.agent.desk
        wanted = 2 * self.agent.capacity + desk.ended_last_second() // 10 + len(desk.held)
        step = 1 << (wanted - 1).bit_length()
        if self.consumer.qos is not None:
            self.consumer.qos.value = step  # the loop tells the broker when it has changed

    def turns(self, *, within_seconds: float) -> bool:
        """Return True if the consumer's loop ticked recently, or need not: while the broker is away
        it may wait for a connection, and running actions go on."""
        if self.agent.is_stopping or self.consumer is None or self.consumer.connection is None:
            return True
        silent_seconds = time.monotonic() - self._ticked_at
        return silent_seconds < within_seconds

    # --- whether it consumes

    @property
    def takes_work(self) -> bool:
        return not (self.agent.is_stopping or self.is_paused)

    def pause(self) -> None:
        """Consume nothing and claim nothing. Delivered messages wait, and their claim is refused if
        the execution has gone elsewhere. May be called from any thread."""
        if not self.is_paused:
            self.is_paused = True
            self.call_soon(self._heed_pause)

    def resume(self) -> None:
        """Consume again after `pause`. May be called from any thread."""
        if self.is_paused:
            self.is_paused = False
            self.call_soon(self._heed_pause)

    def _heed_pause(self) -> None:
        """Consume or not, as it is wanted by now: the loop calls in no order what it is to call
        soon."""
        # one that stops has no loop any more: this may be another thread
        if self.agent.is_stopping or not self.is_connected:
            return
        if self.is_paused:
            self.consumer.task_consumer.cancel()
        else:
            self.consumer.task_consumer.consume()
            self.agent.desk.claim_waiting()

    def consume_again(self) -> None:
        """Consume both queues again; a worker that is paused, that of cancels. May be called from
        any thread."""
        self.call_soon(self._consume_again)

    def _consume_again(self) -> None:
        if self.agent.is_stopping or not self.is_connected:
            return
        # while a process ends, its loop does what is left to do, with a connection that is closed
        if self.consumer.controller.blueprint.state == RUN:
            of_work = () if self.is_paused else (self.consumer.task_consumer,)
            for consumer in (*self.cancel_consumers, *of_work):
                consumer.cancel()
                consumer.consume()

    @property
    def is_connected(self) -> bool:
        """True if there is a connection to the broker, as far as is known."""
        consumer = self.consumer
        return consumer is not None and None not in (consumer.connection, consumer.task_consumer)


def _tick_seconds() -> float:
    """The interval of the loop's ticks: several in any staleness window."""
    tick_seconds: float = settings.MUSTER.staleness_seconds / 8
    return min(LONGEST_TICK_SECONDS, tick_seconds)
