"""An attempt: a Celery request of its own, from its message to the end of its action."""

from __future__ import annotations

import copy
import math
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.concurrency.base import apply_target
from celery.utils.functional import noop
from celery.worker.request import Request
from django.conf import settings

from orchestrator.core import executions, isolation, messages, packs, tracing
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey
from workers import child, hiding, processes
from workers.runtimes import Call, Outcome

if TYPE_CHECKING:
    from workers.host import Desk

log = structlog.get_logger(__name__)

STOPPED = "The worker was stopped, and killed what still ran when its time to stop was up."
LONGEST_MESSAGE = 500

BACKSTOP_SECONDS = 5.0
"""The pool's hard limit comes this long after the runtime's own, in case that one fails."""


class Attempt(Request):
    """One attempt that a dispatch message names, from its delivery to the end of the attempt.

    A Celery request, so that `celery inspect active`, events and Flower see it as a task: one for
    each attempt, also where a message lists many.
    """

    execution_id: UUID
    number: int
    """The attempt's number: the fence."""
    execution: Execution
    """As claimed; set by the claim, never reloaded."""
    contents: executions.Contents
    """The contents that its action gets, with its keys opened. Kept here alone, and never
    stored."""
    masker = hiding.NOTHING
    """Masks its secrets in all that comes of it. Set by the claim."""
    claimed_at: float
    """By `time.monotonic`."""
    begin_by: float = math.inf
    """By the same clock. After it, it goes back and does not begin: its limits count from the
    claim."""
    release_wanted_at = 0.0
    """Since when it has waited for its release; 0 if it has not. By `time.monotonic`."""
    desk: Desk
    _on_ack: Callable[..., None]
    _connection_errors: tuple[type[Exception], ...]
    _kwargs: dict[str, Any]
    _kwargsrepr: str
    job: Any = None
    """The job that the pool has given for it, once it has a slot."""
    slot_goes_on = False
    """The slot that runs it looks for what is next itself, see `desk.Desk.serve`."""
    is_canceling = False
    is_lost = False
    """Its pool child has gone, and what that left behind is being ended."""
    is_stopped = False
    """Its worker has to stop, and kills it."""
    ran_ns = (0, 0)
    """The times at which its action began and ended; zeros if it did not begin, or nothing is
    traced."""

    @property
    def key(self) -> AttemptKey:
        return self.execution_id, self.number

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.begin_by

    def divided(self, keys: Sequence[AttemptKey]) -> list[Attempt]:
        """A request for each of these attempts, which the message of this one names; this one is
        the first."""
        acknowledge = _LastOne(self._on_ack, len(keys))
        attempts = [self, *(copy.copy(self) for _ in keys[1:])]
        for attempt, key in zip(attempts, keys, strict=True):
            attempt.execution_id, attempt.number = key
            attempt._on_ack = acknowledge
            if len(keys) > 1:
                attempt.id = messages.name_of(key)
                attempt._kwargs = messages.about(key)
                attempt._kwargsrepr = repr(attempt._kwargs)
        return attempts

    def acknowledge(self) -> None:
        """Do nothing: Celery calls this as the action begins, in whichever thread that is. What is
        said of its message follows from its claim, see `acknowledge_message`."""

    def acknowledge_message(self) -> None:
        """Tell the broker, on the consumer's thread, that the message was heeded. Raises the errors
        of the broker's library: then it comes again, and its claim is refused."""
        if not self.acknowledged:
            self._on_ack(log, self._connection_errors)
            self.acknowledged = True

    def start(self, pool: Any, *, pack_path: str) -> None:
        """Hand the claimed execution to the pool. `pack_path`: its pack, as its release has it."""
        call = self.begin(pack_path=pack_path)
        if self.desk.slots_go_on:
            self.job = pool.apply_async(self.desk.serve, ([(self, call)],), callback=noop)
            return
        limit_seconds = call.timeout_seconds + call.cancel_grace_seconds + BACKSTOP_SECONDS
        self.job = pool.apply_async(
            child.run,
            args=(call,),
            accept_callback=self.on_accepted,
            timeout_callback=self.on_timeout,
            callback=self.on_outcome,
            error_callback=self.on_lost,
            timeout=limit_seconds,
            correlation_id=self.id,
        )

    def begin(self, *, pack_path: str) -> Call:
        """Have its secrets masked from now on; returns what its runtime needs."""
        hiding.begin(self.masker)
        waited_seconds = time.monotonic() - self.claimed_at
        return call_of(
            self.execution,
            self.contents,
            pack_path=pack_path,
            waited_seconds=waited_seconds,
            begin_by=self.begin_by,
        )

    def run_here(self, call: Call) -> None:
        """Run it in this thread of the pool, as the pool runs what it is given."""
        self.slot_goes_on = True
        apply_target(child.run, (call,), None, self.on_outcome, self.on_accepted)

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """Note that a process or a thread begins. Whatever is wrong with Celery's part of that, the
        action runs: it is claimed, and a thread pool would neither run it nor report the error."""
        try:
            super().on_accepted(pid, time_accepted)
        except Exception:
            log.exception("start not announced", execution_id=str(self.execution_id))

    def on_outcome(self, outcome: Outcome | Any, **_: Any) -> None:
        """Handle the return of the runtime, for any end of the action. Raises nothing: a thread
        pool would not report it, and the slot would be gone."""
        if not isinstance(outcome, Outcome):  # how a thread pool reports an exception
            self.on_lost(outcome)
            return
        if outcome.reason == Reason.GIVEN_BACK and not self.is_canceling:
            self.desk.not_begun(self)
            return
        try:
            reason, result = self._as_known_here(Reason(outcome.reason), outcome.result)
            self._announce(reason)
        except Exception as error:
            log.exception("outcome not understood", execution_id=str(self.execution_id))
            reason = Reason.PROCESS_LOST
            result = explained(reason, _how_it_died(error))
        self._note_run()
        self.desk.ended(self, reason, result)

    def _announce(self, reason: Reason) -> None:
        """Tell who listens to Celery's events."""
        if reason is Reason.SUCCEEDED:
            self.send_event("task-succeeded", result="", runtime=time.time() - self.started_at)
        elif reason is Reason.TASK_REJECTED:
            self.send_event("task-rejected", requeue=True)
        else:
            self.send_event("task-failed", exception=repr(reason.text), traceback="")

    def _as_known_here(
        self, reason: Reason, result: dict[str, Any]
    ) -> tuple[Reason, dict[str, Any]]:
        """The reason and the result, corrected if the worker knows better why the action failed."""
        if reason is Reason.SUCCEEDED:
            return reason, result
        if self.is_canceling:
            return Reason.CANCELLED_RUNNING, result
        if self.is_stopped and reason not in (Reason.RUN_TIMEOUT, Reason.TASK_REJECTED):
            return Reason.WORKER_STOPPED, result | explained(Reason.WORKER_STOPPED, STOPPED)
        if reason is Reason.CANCELLED_RUNNING:
            message = "The action was interrupted by a signal that the worker did not send."
            return Reason.PROCESS_LOST, result | explained(Reason.PROCESS_LOST, message)
        return reason, result

    def on_lost(self, exc_info: Any, **_: Any) -> None:
        """Handle the loss of the pool child, or its end at the pool's own limit. A pool of
        processes reports it on the consumer's thread, which must not wait: a thread does the
        rest."""
        # the pool wraps the error in one whose text is a traceback
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        reason, message = self._why_lost(error)
        self.send_event("task-failed", exception=type(error).__name__, traceback="")
        # nobody is to signal it any more: another process may get its number
        pid, self.worker_pid = self.worker_pid, None
        self.is_lost = True
        self.slot_goes_on = False  # not when this has ended
        end = threading.Thread(target=self._end_lost, args=(pid, reason, message), daemon=True)
        try:
            end.start()
        except RuntimeError:  # too many threads: rather than lose the slot, the loop waits
            end.run()

    def _end_lost(self, pid: int | None, reason: Reason, message: str) -> None:
        self._end_what_is_left(pid)
        self._note_run()
        self.desk.ended(self, reason, explained(reason, message))

    def _end_what_is_left(self, pid: int | None) -> None:
        """End the processes of the action, which a killed child leaves behind, and the child's warm
        ones. Those of this process belong to all of its threads."""
        try:
            processes.terminate(str(self.execution_id), self.number, grace_seconds=0)
            if pid is not None and pid != os.getpid():
                processes.kill_warm(str(pid))
        except Exception:  # whatever is wrong there, the attempt has ended
            log.exception("could not look for processes", execution_id=str(self.execution_id))

    def _why_lost(self, error: BaseException) -> tuple[Reason, str]:
        if self.is_canceling:
            return Reason.CANCELLED_RUNNING, "It did not stop in time, and its process was killed."
        if isinstance(error, TimeLimitExceeded):
            return Reason.RUN_TIMEOUT, "It ran past its time limit, and its process was killed."
        if self.is_stopped:
            return Reason.WORKER_STOPPED, STOPPED
        return Reason.PROCESS_LOST, _how_it_died(error)

    def stopped(self) -> executions.Ended:
        """Its end, for a worker that can stop it only by ending itself."""
        reason = Reason.WORKER_STOPPED
        return executions.Ended(self.execution, reason, explained(reason, STOPPED))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Do nothing: the pool reports the same limit through `on_lost`, which does the work."""

    @property
    def started_at(self) -> float:
        return float(self.time_start or time.time())

    def _note_run(self) -> None:
        """Note when its action began, and that it ended now, if that is traced."""
        ended_ns = tracing.clock_ns()
        if ended_ns and self.time_start:
            self.ran_ns = int(self.started_at * 1e9), ended_ns


class _LastOne:
    """Acknowledges a message when each of its attempts has been acknowledged."""

    def __init__(self, acknowledge: Callable[..., None], attempts: int) -> None:
        self.acknowledge, self.left = acknowledge, attempts

    def __call__(self, *about: Any) -> None:
        self.left -= 1
        if not self.left:
            self.acknowledge(*about)


def explained(reason: Reason, message: str) -> dict[str, Any]:
    """The result of an attempt that its worker ended, or lost."""
    return {"error": reason.text, "message": message, "failed_by": "worker"}


def _how_it_died(error: BaseException) -> str:
    """One sentence on a process that the pool lost."""
    if isinstance(error, WorkerLostError):
        if match := re.search(r"exited prematurely: (.+?)\.? Job", str(error)):
            return f"The pool process that ran it ended: {match[1]}."
        return "The pool process that ran it ended before the action did."
    return f"The worker failed while it ran the action: {named(error)}"


def named(error: BaseException) -> str:
    """An error's name and the first line of its text."""
    first_line = next(iter(str(error).splitlines()), "")[:LONGEST_MESSAGE]
    return f"{type(error).__name__}: {first_line}"


def call_of(
    execution: Execution,
    contents: executions.Contents,
    *,
    pack_path: str,
    waited_seconds: float = 0.0,
    begin_by: float = math.inf,
) -> Call:
    """Collect all that a runtime needs, so that pool children need no database and no keys.
    `waited_seconds`: since the claim."""
    action = execution.action
    return Call(
        execution_id=str(execution.pk),
        attempt=execution.attempt,
        retries=execution.retry_count,
        action_ref=execution.action_ref,
        runtime=action.runtime,
        entry_point=action.entry_point,
        parameters=contents.parameters,
        timeout_seconds=executions.run_limit_seconds(execution, waited_seconds),
        pack_path=pack_path,
        output_limit_bytes=settings.MUSTER.output_limit_bytes,
        cancel_grace_seconds=executions.stop_limit_seconds(execution, waited_seconds),
        options=action.runtime_options,
        limits=action.limits,
        secrets=contents.secrets,
        token=contents.token,
        isolation=isolation.strongest(action.isolation, isolation.least()),
        defers_on_75=packs.defers_on_75(
            action.runtime, action.runtime_options, idempotent=action.idempotent
        ),
        begin_by=begin_by,
    )
