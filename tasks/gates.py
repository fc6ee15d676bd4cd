"""Keepers of gates: they take task messages in, and answer them, in executors.

A keeper has a thread and connections of its own. Its work is a batch: what came becomes rows, what
is over is told, and a delivery is acknowledged after the broker has confirmed what it was answered
with. After any failure, unacknowledged messages come again and find their tickets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any
from uuid import UUID

from amqp.exceptions import ChannelError
from celery import bootsteps
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from kombu import Connection

from orchestrator.core import brokers, clock, outages
from orchestrator.core.declarations import UnclearRefusal
from orchestrator.queues.gates import doors, intake, keeping, telling
from orchestrator.queues.gates.judging import Does
from orchestrator.queues.gates.keeping import Plan
from orchestrator.queues.models import Gate
from tasks.gate_jobs import JobChecker
from tasks.gate_links import Held, Input, News, drain, wait
from tasks.stalls import Watched

log = outages.get_logger(__name__)

LOOK_EVERY_SECONDS = 1.0
SWEEP_EVERY_SECONDS = 2.0
DECLARE_EVERY_SECONDS = 10.0
ALIVE_EVERY_SECONDS = 5.0
NO_GATES_SECONDS = 2.0
MOST_TOLD_AT_ONCE = 500
MOST_WAITING = 100_000
HELD = (Does.TAKE_IN, Does.ATTACH, Does.REFUSE)
"""The decisions after which a delivery is held, for its answer."""


class Keeper(Watched):
    """Keeps the gates of one broker."""

    def __init__(self, broker: str, name: str) -> None:
        super().__init__(name=f"muster-gates-{broker}", daemon=True)
        self.broker, self.holder = broker, name
        self.stopping = threading.Event()
        self.plan = Plan(broker, name)
        self.jobs = JobChecker(lambda: self.plan.all_gates)
        self._forget()

    def _forget(self) -> None:
        """Forget what is held: what a broken connection held comes again."""
        self.inputs: dict[int, Input] = {}
        self.held: dict[int, list[Held]] = {}
        """Deliveries by the ticket that they wait for, those of the oldest first."""
        self.waiting: dict[UUID, int] = {}
        """The tickets that wait for the end of an execution."""
        self.ended: set[UUID] = set()
        self.refused: set[int] = set()
        self.again: list[tuple[Held, int]] = []
        """Copies of messages whose answer is to be sent once more, and their tickets."""
        self.again_at = 0.0
        self.look_at = self.sweep_at = self.declare_at = self.alive_at = 0.0

    # --- the thread ---

    def run(self) -> None:
        pauses = brokers.pauses_seconds()
        self.jobs.start()
        while not self.stopping.is_set():
            pause_seconds = NO_GATES_SECONDS
            try:
                self.plan.refresh(now=clock.now())
                if self.plan.all_gates:
                    pause_seconds = 0.0
                    with brokers.connection(self.broker) as link:
                        brokers.ensure_connected(link)
                        pauses = brokers.pauses_seconds()
                        self._keep(link)
            except (DatabaseError, InterfaceError) as error:
                self.note_failure(error)
                log.exception("database error; unacknowledged messages come again")
                pause_seconds = next(pauses)
            except brokers.errors() as error:
                problem = brokers.explain(error, self.broker)
                log.warning("gates cut off, connecting again", broker=self.broker, error=problem)
                self.plan.note_problem(problem)
                pause_seconds = next(pauses)
            except Exception as error:
                # the thread must survive every fault, because the promise depends on it
                self.note_failure(error)
                log.exception("keeping gates failed; starting again")
                pause_seconds = next(pauses)
            finally:
                self._forget()
                close_old_connections()
            self.stopping.wait(pause_seconds)
        self.jobs.stopping.set()
        self.plan.leave()
        connections.close_all()

    def stop(self) -> None:
        self.stopping.set()
        self.join(timeout=10)

    def _keep(self, link: Connection) -> None:
        """Keep the gates until the connection breaks, or no gate is left."""
        news = News(self.holder, link=link if self.broker == brokers.DEFAULT else None)
        try:
            while self.plan.all_gates and not self.stopping.is_set():
                if time.monotonic() >= self.look_at:
                    self._look(link)
                    news.open()
                self._gather(link, news)
                self._take_in_all()
                self._tell()
            self._finish(link)
        finally:
            news.close()

    def _finish(self, link: Connection) -> None:
        """Take in what was delivered already: given back, it would count as a lost start."""
        for each in self.inputs.values():
            each.consume(0)
        drain(link)
        self._take_in_all()
        self._tell()

    def _gather(self, link: Connection, news: News) -> None:
        """Wait for a delivery, for news, or until it is time to look."""
        links = [link, news.link] if news.link and not news.is_shared else [link]
        if not self._has_work(news):
            wait(links, seconds=min(self.sweep_at, self.look_at) - time.monotonic())
        drain(link)
        news.drain()
        self.ended |= news.taken() & self.waiting.keys()

    def _has_work(self, news: News) -> bool:
        received = any(
            each.received and each.gate.queue_id in self.plan.gates for each in self.inputs.values()
        )
        return received or bool(self.ended or self.refused or news.ended)

    # --- looking ---

    def _look(self, link: Connection) -> None:
        """Renew what changes slowly: gates, prefetch, deliveries that are held for long."""
        self.look_at = time.monotonic() + LOOK_EVERY_SECONDS
        close_old_connections()
        self.plan.refresh(now=clock.now())
        if time.monotonic() >= self.declare_at:
            self.declare_at = time.monotonic() + DECLARE_EVERY_SECONDS
            self._declare_again(link)
        if time.monotonic() >= self.alive_at:
            self.alive_at = time.monotonic() + ALIVE_EVERY_SECONDS
            self.plan.note_alive(held=sum(map(len, self.held.values())), now=clock.now())
        for each in self.inputs.values():
            each.try_again()
        for gate_id in set(self.inputs) - set(self.plan.gates):
            self.inputs[gate_id].consume(0)
        for gate in self.plan.gates.values():
            self._serve(link, gate)
        self._let_go()

    def _declare_again(self, link: Connection) -> None:
        """Open the consumers of deleted queues again, replace those that something could not be
        passed on to, and notice a dead connection."""
        for gate_id, each in list(self.inputs.items()):
            if each.is_cancelled and not self._holds_of(each):
                del self.inputs[gate_id]
                each.close()
            else:
                each.channel.basic_qos(0, 0, False)
                if each.postponed:
                    with self._noting_refusals(each.gate):
                        doors.declare(link, each.gate)

    def _holds_of(self, input: Input) -> bool:
        """Return True if something is still to be acknowledged on its channel."""
        copies = [held for held, _ in self.again]
        unacknowledged = chain(input.postponed, copies, *self.held.values())
        return any(held.channel is input.channel for held in unacknowledged)

    def _serve(self, link: Connection, gate: Gate) -> None:
        wanted = self.plan.prefetch(gate)
        served = self.inputs.get(gate.queue_id)
        if served is None:
            if not wanted or not self.plan.may_declare(gate):
                return
            self._open(link, gate, wanted)
            return
        served.gate = gate
        if keeping.is_changed(served.prefetch, wanted) or served.is_cancelled:
            served.is_cancelled = False
            served.consume(wanted)

    def _open(self, link: Connection, gate: Gate, prefetch: int) -> None:
        """Declare and consume a gate."""
        with self._noting_refusals(gate):
            opened = Input(link, gate)
            opened.consume(prefetch)
            self.inputs[gate.queue_id] = opened

    @contextmanager
    def _noting_refusals(self, gate: Gate) -> Iterator[None]:
        """Note whether the broker lets us have the queues of a gate. One that it refuses stops no
        other."""
        try:
            yield
        except (doors.GateQueueDiffers, UnclearRefusal, ChannelError) as refused:
            self.plan.note_refused(gate, str(refused))
        else:
            self.plan.note_opened(gate)

    def _let_go(self) -> None:
        """Acknowledge what was held for so long that the broker would close the channel, and what
        waits for a later time: a row answers for it."""
        limit = time.monotonic() - settings.MUSTER.gate_hold_seconds
        over = [held for held, _ in self.again if held.since < limit]
        self.again = [each for each in self.again if each[0].since >= limit]
        # by another keeper, or by hand
        told = telling.told_among(self.held)
        parked = self.plan.parked(self.waiting)
        for ticket_id in told & self.held.keys():
            self._settle(ticket_id)
        for ticket_id, group in list(self.held.items()):
            if group[0].since < limit or ticket_id in parked:
                over += self.held.pop(ticket_id)
        for held in over:
            held.ack()

    # --- taking in ---

    def _take_in_all(self) -> None:
        for each in self.inputs.values():
            # what came before its queue was closed waits here, unacknowledged, for its opening
            while each.received and each.gate.queue_id in self.plan.gates:
                batch = self._next_batch(each)
                try:
                    self._take_in(each, batch)
                except intake.QueueClosed:
                    each.received[:0] = batch
                    self.plan.refresh(now=clock.now())
                    self.plan.gates.pop(each.gate.queue_id, None)

    def _next_batch(self, input: Input) -> list[Held]:
        """The next deliveries. One that may have killed a keeper is taken in alone, as far as no
        retry queue counts it."""
        size = settings.MUSTER.batch_size
        if input.received[0].delivery.redelivered and not input.gate.count_redelivered:
            size = 1
        batch, input.received[:] = input.received[:size], input.received[size:]
        return batch

    def _take_in(self, input: Input, batch: Sequence[Held], undeliverable: str = "") -> None:
        taken = intake.take_in(
            [held.delivery for held in batch],
            gate=input.gate,
            holder=self.holder,
            now=clock.now(),
            undeliverable=undeliverable,
        )
        passed_on: list[tuple[Held, intake.Taken]] = []
        for held, each in zip(batch, taken, strict=True):
            if each.verdict.does in HELD:
                self._hold(input.gate, held, each)
            elif each.verdict.does is Does.ANSWER_AGAIN:
                assert each.ticket_id is not None
                self.again.append((held, each.ticket_id))
            else:
                passed_on.append((held, each))
        if passed_on:
            self._pass_on(input, passed_on)

    def _hold(self, gate: Gate, held: Held, taken: intake.Taken) -> None:
        assert taken.ticket_id is not None
        held.is_copy = taken.verdict.does is Does.ATTACH and not held.delivery.redelivered
        if not held.is_copy:  # who holds the original tells: of two at once, both would answer it
            self._expect(taken.ticket_id, taken)
        if gate.custody == Gate.Custody.ROW and not held.is_copy:
            held.ack()
        else:
            self.held.setdefault(taken.ticket_id, []).append(held)

    def _expect(self, ticket_id: int, taken: intake.Taken) -> None:
        """Note what is to be told, or the execution whose end is waited for."""
        if taken.execution_id is None:
            self.refused.add(ticket_id)
            return
        if len(self.waiting) >= MOST_WAITING:  # the oldest are left to the sweep
            self.waiting.pop(next(iter(self.waiting)))
        self.waiting[taken.execution_id] = ticket_id
        if taken.verdict.does is Does.ATTACH:
            self.ended.add(taken.execution_id)  # it may be over already

    def _pass_on(self, input: Input, pairs: Sequence[tuple[Held, intake.Taken]]) -> None:
        """Publish copies, and acknowledge those that the broker has confirmed. A message that can
        never be forwarded, as its queue is not there or takes none of ours, is refused. What else
        fails is tried again from the start, at the next look: the queue may be full, or the broker
        stalled, and the other gates go on meanwhile. What a stalled broker may have taken is not
        refused: it would be forwarded, and answered."""
        fates = keeping.pass_on(
            [(held.delivery, taken.verdict) for held, taken in pairs],
            gate=input.gate,
            now=clock.now(),
        )
        failed = []
        for (held, taken), fate in zip(pairs, fates, strict=True):
            if fate.is_taken:
                held.ack()
            elif taken.verdict.does is Does.FORWARD and fate.is_final:
                self._take_in(input, [held], undeliverable=fate.reason)
            else:
                failed.append((held, fate.reason))
        if failed:
            log.warning("messages not passed on, trying again", n=len(failed), why=failed[0][1])
            input.postponed += [held for held, _ in failed]

    # --- telling ---

    def _tell(self) -> None:
        """Tell what this keeper holds and is over; what nobody told, now and then."""
        now = clock.now()
        due = []
        if self.ended:
            due += telling.of_executions(self.ended, now=now)
            self.ended.clear()
        if self.refused:
            due += telling.of_refused(self.refused, now=now)
            self.refused.clear()
        if time.monotonic() >= self.sweep_at:
            self.sweep_at = time.monotonic() + SWEEP_EVERY_SECONDS
            left = telling.claim_due(self.plan.all_ids, now=now, limit=MOST_TOLD_AT_ONCE)
            known = {ticket.pk for ticket in due}
            due += [ticket for ticket in left if ticket.pk not in known]
        if due:
            outcome = telling.tell(due, gates=self.plan.all_gates, now=now)
            for ticket_id in outcome.told:
                self._settle(ticket_id)
            self._forget_ends(ticket.execution_id for ticket in due if ticket.pk in outcome.told)
        if self.again and time.monotonic() >= self.again_at:
            self._tell_again()

    def _tell_again(self) -> None:
        """Answer copies of messages; those whose answer is not taken wait for the next look."""
        again, self.again = self.again, []
        answered = telling.tell_again(
            {ticket_id for _, ticket_id in again}, gates=self.plan.all_gates
        )
        for held, ticket_id in again:
            if ticket_id in answered:
                held.ack()
            else:
                self.again.append((held, ticket_id))
        if self.again:
            self.again_at = time.monotonic() + LOOK_EVERY_SECONDS

    def _forget_ends(self, ids: Iterable[UUID | None]) -> None:
        for execution_id in ids:
            if execution_id is not None:
                self.waiting.pop(execution_id, None)

    def _settle(self, ticket_id: int) -> None:
        """Acknowledge what waited for this answer; who published the message twice gets two."""
        for held in self.held.pop(ticket_id, ()):
            if held.is_copy:
                self.again.append((held, ticket_id))
            else:
                held.ack()


def stop_all(keepers: Sequence[Keeper]) -> None:
    """Stop these keepers, all at once."""
    for keeper in keepers:
        keeper.stopping.set()
    for keeper in keepers:
        keeper.stop()


class GateStep(bootsteps.StartStopStep):
    """Runs a keeper for each broker in every executor, unless it was started without gates."""

    requires = ("tasks.batch_scheduler:SchedulerStep",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        self.keepers: list[Keeper] = []
        super().__init__(worker, **kwargs)

    def include_if(self, worker: Any) -> bool:
        return bool(getattr(worker.app, "keeps_gates", False))

    def start(self, worker: Any) -> None:
        self.keepers = [Keeper(alias, worker.hostname) for alias in brokers.aliases()]
        worker.muster_watched += self.keepers
        for keeper in self.keepers:
            keeper.start()

    def stop(self, worker: Any) -> None:
        stop_all(self.keepers)
        self.keepers = []

    def terminate(self, worker: Any) -> None:
        self.stop(worker)
