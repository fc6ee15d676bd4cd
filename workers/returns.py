"""The attempts that a worker gives back: those that it was given, or has claimed, and has not
begun."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connections

from orchestrator.core import clock, executions, outages
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey
from workers.host import Host

log = outages.get_logger(__name__)

NOT_GIVEN_BACK = "could not give back; a heartbeat will"


class Returns:
    """Gives back to the backlog what has not begun here."""

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self._giving_back = threading.Lock()
        """Held from the taking of unstarted attempts until they are given back: a worker that signs
        off before that has lost them."""

    def give_back_soon(self, unbegun: Sequence[Execution], reason: Reason) -> None:
        """Give back what was claimed and does not begin here. From the loop, which must not wait
        for the database, or from a slot's thread."""
        keys = [execution.key for execution in unbegun]
        give_back = partial(self._hand_over, unbegun, keys, reason=reason)
        if self.agent.is_stopping:  # who signs off waits for the pool, and for no thread
            attempted(give_back, NOT_GIVEN_BACK)
            return
        try:
            threading.Thread(
                target=attempted, args=(give_back, NOT_GIVEN_BACK), daemon=True
            ).start()
        except RuntimeError:  # no thread can be started
            log.exception(NOT_GIVEN_BACK)
            self.agent.desk.in_hand.let_go(keys)

    def are_waiting(self) -> bool:
        """Return True if there is something to give back, of a worker that stops."""
        return bool(self.agent.desk.ready or self.agent.claimer.answers)

    def give_back_all(self, *, pool_is_down: bool) -> None:
        """Give back what was dispatched to this worker or claimed by it, and has not started."""
        with self._giving_back:
            unstarted = self.agent.desk.take_back(older_than_seconds=0)
            if pool_is_down:
                unstarted += self.agent.desk.take_unbegun()
            keys = [execution.key for execution in unstarted]
            # the loop that would have taken them may have ended
            for answer in self.agent.claimer.take_answers():
                unstarted += answer.granted or ()
                keys += [attempt.key for attempt in answer.batch]
            given_back = self._hand_over(unstarted, keys, worker_id=self.agent.worker_id)
            if given_back:
                log.info("unstarted work given back", worker=self.agent.name, n=len(given_back))

    def _hand_over(
        self, unstarted: Sequence[Execution], keys: list[AttemptKey], **how: Any
    ) -> set[UUID]:
        """Give back what has not begun. If that cannot be written now, or another transaction holds
        a row, the attempt is no longer in hand, and the audit gives it back two heartbeats
        later."""
        try:
            return executions.give_back(
                unstarted=unstarted, now=clock.now(), actor=self.agent.name, **how
            )
        finally:
            self.agent.desk.in_hand.let_go(keys)


def attempted(step: Callable[[], object], problem: str) -> bool:
    """Take a step on a thread of its own, whatever goes wrong; returns False if it failed."""
    try:
        step()
    except Exception:
        log.exception(problem)
        return False
    finally:
        connections.close_all()
    return True
