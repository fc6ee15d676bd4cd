"""The two threads of a worker that write to the database, so that its event loop never waits.

Each takes as much at once as has gathered since its last statement: a batch is as large as the
load makes it. Nothing lingers when there is little to do; under load the finisher pauses
between two statements, because one for three ends costs nearly as much as one for thirty.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.db import DataError, close_old_connections, connections
from django.db import Error as DatabaseError

from orchestrator.core import clock, executions
from orchestrator.core.executions import Ended
from orchestrator.core.models.claiming import AttemptKey
from orchestrator.core.reasons import Reason
from workers.host import Answer, Host, Offered

T = TypeVar("T")

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0

LEAST_GAP_SECONDS = 0.025
"""The least time between two statements that record ends. Nobody waits for a slot meanwhile: what
runs next is claimed ahead."""

IDLE_SECONDS = 10.0
"""A connection that was not used for this long is checked before it is used again."""

HELD_PAUSE_SECONDS = 0.5
"""An end whose row another transaction has is tried again after this."""


class Claimer(threading.Thread):
    """Claims attempts for the agent, and wakes it when there is an answer."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-claimer", daemon=True)
        self.agent = agent
        self.asked: queue.Queue[list[Offered]] = queue.Queue()
        self.answers: deque[Answer] = deque()

    def ask(self, batch: list[Offered]) -> None:
        self.asked.put(batch)

    def take_answers(self) -> Iterator[Answer]:
        """What was answered since the last call."""
        while self.answers:
            yield self.answers.popleft()

    def run(self) -> None:
        while True:
            asked = _gather(self.asked)
            self._claim([attempt for batch in asked for attempt in batch])
            for _ in asked:
                self.asked.task_done()

    def _claim(self, batch: list[Offered]) -> None:
        if self.agent.is_stopping:
            self.answers.append(Answer(batch, None))
            return
        try:
            answer = self._ask_database(batch)
        except DatabaseError:
            log.exception("cannot claim, trying again")
            connections.close_all()
            time.sleep(PAUSE_SECONDS)
            answer = Answer(batch, None)
        self.answers.append(answer)
        self.agent.wake()

    def _ask_database(self, batch: list[Offered]) -> Answer:
        wanted = {attempt.key for attempt in batch}
        now = clock.now()
        life = {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}
        granted = executions.claim(wanted, **life, now=now, actor=self.agent.name)
        if len(granted) == len(wanted):
            return Answer(batch, granted)
        refused = wanted - {execution.key for execution in granted}
        try:
            held = executions.still_offered(refused, **life, now=now)
        except DatabaseError:
            # what was granted must begin; asked again, the others hear what is to become of them
            log.exception("could not ask why a claim was refused")
            connections.close_all()
            held = refused
        return Answer(batch, granted, held)

    def flush(self, timeout_seconds: float) -> None:
        """Wait for the answer to what was asked."""
        _wait_until_done(self.asked, timeout_seconds)


class Finisher(threading.Thread):
    """Takes ends as they come and records as many at once as have gathered meanwhile.

    While the database cannot be written it keeps them, and tries again until it can: an end
    that is known must not be lost as long as this process lives.
    """

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-finisher", daemon=True)
        self.agent = agent
        self.ends: queue.Queue[Ended] = queue.Queue()
        self._recorded_at = 0.0

    def put(self, end: Ended) -> None:
        self.ends.put(end)

    def run(self) -> None:
        while True:
            batch = _gather(self.ends, not_before=self._recorded_at + LEAST_GAP_SECONDS)
            if time.monotonic() - self._recorded_at > IDLE_SECONDS:
                close_old_connections()
            self._record(batch)
            self._recorded_at = time.monotonic()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until every end is recorded; False when time ran out first."""
        return _wait_until_done(self.ends, timeout_seconds)

    def _record(self, batch: list[Ended]) -> None:
        while True:
            try:
                self._record_once(batch)
            except DataError as error:
                if len(batch) > 1:
                    for end in batch:
                        self._record([end])
                    return
                batch = [_unstorable(batch[0], error)]
            except DatabaseError:
                log.exception("cannot record ends, trying again", n=len(batch))
                connections.close_all()
                time.sleep(PAUSE_SECONDS)
            else:
                return

    def _record_once(self, batch: list[Ended]) -> None:
        counted = executions.finish(batch, now=clock.now(), actor=self.agent.name)
        refused = {end.execution.key for end in batch} - counted
        held: Collection[AttemptKey] = ()
        if refused:
            held = executions.still_started(
                refused, worker_id=self.agent.worker_id, incarnation=self.agent.incarnation
            )
        settled = [end for end in batch if end.execution.key not in held]
        for end in settled:
            if end.execution.key in refused:
                log.warning(
                    "late result refused: the attempt was given up",
                    execution_id=str(end.execution.pk),
                )
            self.ends.task_done()
        self.agent.desk.in_hand.let_go(end.execution.key for end in settled)
        if held:
            self._record_later([end for end in batch if end.execution.key in held])

    def _record_later(self, held: list[Ended]) -> None:
        """Another transaction has their rows: after a pause, with whatever has ended by then."""

        def put_back() -> None:
            for end in held:
                self.ends.put(end)
                self.ends.task_done()  # it was never done before

        log.warning("ends wait for another transaction, which has their rows", n=len(held))
        timer = threading.Timer(HELD_PAUSE_SECONDS, put_back)
        timer.daemon = True
        timer.start()


def _gather(source: queue.Queue[T], *, not_before: float = 0.0) -> list[T]:
    """Wait for one, and until `not_before`; then take all that are there, up to a batch."""
    batch = [source.get()]
    if (wait_seconds := not_before - time.monotonic()) > 0:
        time.sleep(wait_seconds)
    while len(batch) < settings.MUSTER.batch_size:
        try:
            batch.append(source.get_nowait())
        except queue.Empty:
            break
    return batch


def _wait_until_done(source: queue.Queue[Any], timeout_seconds: float) -> bool:
    """`Queue.join` with a limit."""
    until = time.monotonic() + timeout_seconds
    while source.unfinished_tasks and time.monotonic() < until:
        time.sleep(0.005)
    return not source.unfinished_tasks


def _unstorable(end: Ended, error: Exception) -> Ended:
    """The database takes no such result, so the end is recorded without it."""
    result = {
        "error": "The result could not be stored",
        "message": str(error).replace("\x00", ""),
        "failed_by": "worker",
    }
    return Ended(end.execution, Reason.ACTION_FAILED, result)
