"""Traces of executions, from their request to their end, across all processes.

Off by default: then each function here returns at once, and OpenTelemetry is not imported. Each
process records spans of what it did itself:

    execution request
        execution schedule                      one for each attempt
            execution dispatch
                execution claim
                    execution run
                        execution end           its parent is the last step that was taken
                            execution completed

No message carries a context. A row says where the trace of an execution began; the ids of all other
spans are made of the execution's id, the attempt and the step, so that every process knows its
parent. What is sent again, delivered twice or lost changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from django.conf import settings

from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey, ExecutionStatus
from orchestrator.core.tracing.steps import Span, Step

if TYPE_CHECKING:
    from orchestrator.core.models import Execution


log = structlog.get_logger(__name__)


class Ended(Protocol):
    """An end that a worker reports: see `executions.Ended`."""

    @property
    def execution(self) -> Execution: ...
    @property
    def reason(self) -> Reason: ...
    @property
    def began_ns(self) -> int: ...
    @property
    def ended_ns(self) -> int: ...


def clock_ns() -> int:
    """The beginning or the end of a span, by this machine's clock; 0 while traces are off."""
    return time.time_ns() if settings.TRACES else 0


def requested(executions: Sequence[Execution], *, began_ns: int) -> None:
    """Begin the traces of these executions, whose rows are written in this transaction."""
    if settings.TRACES and executions:
        _spans().request(executions, began_ns=began_ns)


def scheduled(attempts: Iterable[tuple[AttemptKey, int | None]], *, began_ns: int) -> None:
    """Record that these attempts were given to these workers."""
    if settings.TRACES:
        _record(
            Step.SCHEDULE,
            [
                Span(key, Step.REQUEST, {"muster.worker.id": worker}, began_ns)
                for key, worker in attempts
            ],
        )


def dispatched(attempts: Iterable[AttemptKey], *, began_ns: int, fault: str = "") -> None:
    """Record that these attempts were sent to their workers, or could not be."""
    if settings.TRACES:
        _record(
            Step.DISPATCH,
            [Span(key, Step.SCHEDULE, {}, began_ns, fault=fault) for key in attempts],
        )


def claimed(executions: Iterable[Execution], *, worker: str, began_ns: int) -> None:
    """Record that a worker claimed these."""
    if settings.TRACES:
        about = {"muster.worker.name": worker}
        _record(
            Step.CLAIM,
            [Span(e.key, Step.DISPATCH, about | _about(e), began_ns) for e in executions],
        )


def reported(ends: Sequence[Ended], *, worker: str, began_ns: int) -> None:
    """Record that their worker reported these ends, and how it ran the actions."""
    if settings.TRACES:
        about = {"muster.worker.name": worker}
        _record(
            Step.RUN,
            [
                Span(
                    end.execution.key,
                    Step.CLAIM,
                    about | {"muster.reason": end.reason} | _about(end.execution),
                    end.began_ns,
                    end.ended_ns,
                    fault=_fault(end.reason),
                )
                for end in ends
                if end.began_ns
            ],
        )
        _record(
            Step.END,
            [
                _end(
                    end.execution,
                    Step.RUN if end.began_ns else Step.CLAIM,
                    end.reason,
                    worker,
                    began_ns,
                )
                for end in ends
            ],
        )


def ended(executions: Iterable[Execution], *, reason: str, actor: str, began_ns: int) -> None:
    """Record that these attempts ended, and that their worker did not report it."""
    if settings.TRACES:
        _record(
            Step.END,
            [_end(each, _last_step(each), reason, actor, began_ns) for each in executions],
        )


def completed(attempts: Iterable[AttemptKey], *, began_ns: int) -> None:
    """Record that an executor heard of the end of these executions."""
    if settings.TRACES:
        _record(Step.COMPLETED, [Span(key, Step.END, {}, began_ns) for key in attempts])


def _end(execution: Execution, parent: Step, reason: str, actor: str, began_ns: int) -> Span:
    about = {"muster.reason": reason, "muster.actor": actor} | _about(execution)
    return Span(execution.key, parent, about, began_ns, fault=_fault(reason))


def _fault(reason: str) -> str:
    return "" if reason == Reason.SUCCEEDED else reason


def _last_step(execution: Execution) -> Step:
    """The last span of an attempt that nobody reported the end of, as it was read."""
    if execution.status in (ExecutionStatus.RUNNING, ExecutionStatus.CANCELING):
        return Step.CLAIM
    return Step.DISPATCH if execution.status == ExecutionStatus.SCHEDULED else Step.REQUEST


def _about(execution: Execution) -> dict[str, Any]:
    return {"muster.action": execution.action_ref}


def _record(step: Step, each: Sequence[Span]) -> None:
    if not each:
        return
    try:
        _spans().record(step, each)
    except Exception:
        # what is traced has happened, and its thread must go on
        log.exception("spans dropped", step=step, n=len(each))


def _spans() -> Any:
    """The only module that imports OpenTelemetry."""
    from orchestrator.core.tracing import spans

    return spans
