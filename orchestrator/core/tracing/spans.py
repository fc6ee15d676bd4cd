"""Spans by OpenTelemetry's SDK, exported by OTLP over HTTP in a thread of their own.

Where to, how many at once and what is sampled is said by the standard variables `OTEL_...`, which
the SDK reads.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import transaction
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from orchestrator.core.models.traces import TraceContext
from orchestrator.core.state_machine.swap import processor
from orchestrator.core.states import AttemptKey
from orchestrator.core.tracing.steps import Span, Step

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from orchestrator.core.models import Execution

PROPAGATOR = TraceContextTextMapPropagator()
KINDS = {
    Step.REQUEST: trace.SpanKind.PRODUCER,
    Step.DISPATCH: trace.SpanKind.PRODUCER,
    Step.CLAIM: trace.SpanKind.CONSUMER,
}

_wanted_id: ContextVar[int] = ContextVar("wanted_id", default=0)


class _Ids(RandomIdGenerator):
    """Gives a span the id that is wanted for it, or a random one."""

    def generate_span_id(self) -> int:
        return _wanted_id.get() or super().generate_span_id()


@cache
def _tracer_of(pid: int) -> trace.Tracer:
    """The tracer of a process. A child of a fork makes its own."""
    provider = TracerProvider(resource=_resource(), id_generator=_Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("muster")


def tracer() -> trace.Tracer:
    return _tracer_of(os.getpid())


def _resource() -> Resource:
    """This process, with the service's name that the environment gives it, or its command's."""
    resource = Resource.create({"service.instance.id": processor()})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        return resource.merge(Resource({"service.name": _service()}))
    return resource


def _service() -> str:
    """Such as `muster-executor`: the command that this process runs."""
    command = sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
    return f"muster-{command}" if command else "muster"


def request(executions: Sequence[Execution], *, began_ns: int) -> None:
    """Begin the trace of each, or go on with that of the caller; keep where they began."""
    spans = [
        tracer().start_span(
            Step.REQUEST,
            kind=KINDS[Step.REQUEST],
            attributes=_attributes((each.pk, 0), {"muster.action": each.action_ref}),
            start_time=began_ns,
        )
        for each in executions
    ]
    rows = [
        _row(each.pk, span)
        for each, span in zip(executions, spans, strict=True)
        if span.get_span_context().trace_flags.sampled
    ]
    TraceContext.objects.bulk_create(rows)

    def end() -> None:
        for span in spans:
            span.end()

    transaction.on_commit(end)


def _row(execution_id: UUID, span: trace.Span) -> TraceContext:
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return TraceContext(
        execution_id=execution_id,
        traceparent=carrier["traceparent"],
        tracestate=carrier.get("tracestate", "")[:512],
    )


def record(step: Step, each: Sequence[Span]) -> None:
    """Record this step of the attempts whose trace is sampled."""
    began = _contexts([span.key[0] for span in each])
    for one in each:
        context = began.get(one.key[0])
        if context is None:
            continue
        with _named(_span_id(one.key, step)):
            span = tracer().start_span(
                step,
                context=_below(context, one.key, one.parent),
                kind=KINDS.get(step, trace.SpanKind.INTERNAL),
                attributes=_attributes(one.key, one.attributes),
                start_time=one.began_ns,
            )
        if one.fault:
            span.set_status(trace.Status(trace.StatusCode.ERROR, one.fault))
        span.end(one.ended_ns or None)


def _contexts(execution_ids: Sequence[UUID]) -> dict[UUID, Context]:
    """The contexts in which the traces of these executions began."""
    rows = TraceContext.objects.filter(execution_id__in=execution_ids)
    return {
        row.execution_id: PROPAGATOR.extract(
            {"traceparent": row.traceparent, "tracestate": row.tracestate}
        )
        for row in rows
    }


def _below(context: Context, key: AttemptKey, parent: Step) -> Context:
    """The context in which the span of this step of the attempt is the parent."""
    if parent is Step.REQUEST:
        return context
    began = trace.get_current_span(context).get_span_context()
    of_parent = trace.SpanContext(
        began.trace_id,
        _span_id(key, parent),
        is_remote=True,
        trace_flags=began.trace_flags,
        trace_state=began.trace_state,
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(of_parent))


def _span_id(key: AttemptKey, step: Step) -> int:
    """The id of a span, which every process can compute."""
    execution_id, attempt = key
    text = f"{execution_id}.{attempt}.{step}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) or 1


def _attributes(key: AttemptKey, others: Mapping[str, Any]) -> dict[str, Any]:
    execution_id, attempt = key
    known = {"muster.execution.id": str(execution_id), "muster.attempt": attempt or None, **others}
    return {name: value for name, value in known.items() if value is not None}


@contextmanager
def _named(span_id: int) -> Iterator[None]:
    token = _wanted_id.set(span_id)
    try:
        yield
    finally:
        _wanted_id.reset(token)
