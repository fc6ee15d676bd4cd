"""Records how attempts ended: a thread with a database connection of its own."""

from __future__ import annotations

import logging
import queue
import threading
import time

from django.conf import settings
from django.db import DataError, close_old_connections, connections
from django.db import Error as DatabaseError

from orchestrator import clock, executions
from orchestrator.executions import Ended
from orchestrator.reasons import Reason

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0


class Finisher(threading.Thread):
    """Takes ends as they come and records as many at once as have gathered meanwhile.

    While the database cannot be written it keeps them, and tries again until it can: an end
    that is known must not be lost as long as this process lives.
    """

    def __init__(self, actor: str) -> None:
        super().__init__(name="muster-finisher", daemon=True)
        self.actor = actor
        self.ends: queue.Queue[Ended] = queue.Queue()

    def put(self, end: Ended) -> None:
        self.ends.put(end)

    def run(self) -> None:
        while True:
            batch = [self.ends.get()]
            while len(batch) < settings.MUSTER.batch_size:
                try:
                    batch.append(self.ends.get_nowait())
                except queue.Empty:
                    break
            self._record(batch)
            for _ in batch:
                self.ends.task_done()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until every end is recorded; False when time ran out first."""
        until = time.monotonic() + timeout_seconds
        while self.ends.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.005)
        return not self.ends.unfinished_tasks

    def _record(self, batch: list[Ended]) -> None:
        while True:
            try:
                counted = executions.finish(batch, now=clock.now(), actor=self.actor)
            except DataError as error:
                if len(batch) > 1:
                    for end in batch:
                        self._record([end])
                    return
                batch = [_unstorable(batch[0], error)]
            except DatabaseError:
                log.exception("cannot record ends, trying again", extra={"n": len(batch)})
                connections.close_all()
                time.sleep(PAUSE_SECONDS)
            else:
                late = [end for end in batch if end.execution.pk not in counted]
                for end in late:
                    log.warning(
                        "late result refused: the attempt was given up",
                        extra={"execution_id": str(end.execution.pk)},
                    )
                close_old_connections()
                return


def _unstorable(end: Ended, error: Exception) -> Ended:
    """The database takes no such result, so the end is told without it."""
    result = {
        "error": "The result could not be stored",
        "message": str(error).replace("\x00", ""),
        "failed_by": "worker",
    }
    return Ended(end.execution, Reason.ACTION_FAILED, result)
