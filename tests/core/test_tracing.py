"""Traces: off unless asked for, free while they are off, and never an error for what is traced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orchestrator.core import executions, retention, tracing
from orchestrator.core.executions import NewExecution
from orchestrator.core.models import Execution, TraceContext
from orchestrator.core.reasons import Reason
from orchestrator.core.tracing import spans
from settings import traces
from tests.factories import NOW, make_action, make_execution

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


# --- the switch ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "are_on"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "muster"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "true", **ENDPOINT}, False),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", **ENDPOINT}, True),
    ],
)
def test_the_standard_variables_switch_traces_on(environ: dict[str, str], are_on: bool) -> None:
    assert traces.are_on(environ) is are_on


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ],
)
def test_what_is_not_spoken_is_refused_at_the_start(name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"{name}='{value}': expected one of"):
        traces.are_on({name: value, **ENDPOINT})


def test_packages_that_are_missing_are_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "find_spec", lambda name: None)
    assert traces.are_on({}) is False
    with pytest.raises(ImproperlyConfigured, match=r"pip install -r requirements-otel\.txt"):
        traces.are_on(ENDPOINT)


def test_while_traces_are_off_no_process_imports_opentelemetry() -> None:
    code = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
django.setup()
import orchestrator.core.api.urls, settings.urls, tasks.batch_scheduler, workers.agent
from orchestrator.core import tracing
tracing.scheduled([(("id", 1), 1)], began_ns=tracing.clock_ns())
assert tracing.clock_ns() == 0
sys.exit(any(name.partition(".")[0] == "opentelemetry" for name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=django_settings.BASE_DIR, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


# --- in one process ------------------------------------------------------------------------------


@pytest.fixture
def exported(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of this process, while traces are on."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(id_generator=spans._Ids(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans, "tracer", lambda: provider.get_tracer("muster"))
    settings.TRACES = True
    yield exporter
    provider.shutdown()


def request(n: int = 1) -> list[Execution]:
    make_action()
    news = [NewExecution(action_ref="core.echo") for _ in range(n)]
    return executions.request_many(news, requested_by="ada", now=NOW)


def names(exported: InMemorySpanExporter) -> list[str]:
    return [span.name for span in exported.get_finished_spans()]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("database", "sent")
class TestInOneProcess:
    def test_each_execution_of_a_request_begins_a_trace(
        self, exported: InMemorySpanExporter
    ) -> None:
        accepted = request(3)
        rows = TraceContext.objects.in_bulk([each.pk for each in accepted])
        begun = {
            f"00-{s.context.trace_id:032x}-{s.context.span_id:016x}"
            for s in exported.get_finished_spans()
        }
        assert {row.traceparent.rpartition("-")[0] for row in rows.values()} == begun
        assert len(begun) == 3

    def test_a_caller_that_is_not_sampled_leaves_no_row(
        self, exported: InMemorySpanExporter
    ) -> None:
        caller = spans.PROPAGATOR.extract(
            {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
        )
        with trace.use_span(trace.get_current_span(caller)):
            [accepted] = request()
        executions.end_attempts(
            [accepted], reason=Reason.NO_WORKER_AVAILABLE, detail="", failed_by="e", now=NOW
        )
        assert not TraceContext.objects.exists()
        assert names(exported) == []

    def test_what_was_accepted_while_traces_were_off_has_none(
        self, exported: InMemorySpanExporter
    ) -> None:
        executions.end_attempts(
            [make_execution()],
            reason=Reason.NO_WORKER_AVAILABLE,
            detail="",
            failed_by="executor",
            now=NOW,
        )
        assert names(exported) == []

    def test_a_repeated_key_begins_no_second_trace(self, exported: InMemorySpanExporter) -> None:
        make_action()
        new = NewExecution(action_ref="core.echo", idempotency_key="once")
        first, second = (executions.request(new, requested_by="a", now=NOW) for _ in range(2))
        assert first == second
        assert names(exported) == ["execution request"]

    def test_an_end_that_lost_its_race_leaves_no_span(
        self, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [accepted] = request()
        lost = TransitionLost(monkeypatch)
        executions.end_attempts(
            [accepted], reason=Reason.NO_WORKER_AVAILABLE, detail="", failed_by="e", now=NOW
        )
        assert lost.asked
        assert names(exported) == ["execution request"]

    def test_a_database_that_does_not_answer_costs_spans_and_nothing_else(
        self, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [accepted] = request()

        def away(*_: Any) -> Any:
            raise OperationalError("away")

        monkeypatch.setattr(spans, "_contexts", away)
        tracing.dispatched([accepted.key], began_ns=1)
        assert names(exported) == ["execution request"]

    def test_where_a_trace_began_goes_with_its_execution(
        self, exported: InMemorySpanExporter
    ) -> None:
        [accepted] = request()
        executions.end_attempts(
            [accepted], reason=Reason.NO_WORKER_AVAILABLE, detail="", failed_by="e", now=NOW
        )
        assert TraceContext.objects.exists()
        retention.prune(now=accepted.created_at + timedelta(days=400))
        assert not TraceContext.objects.exists()


class TransitionLost:
    """Another process gets there first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = False
        monkeypatch.setattr(type(Execution.objects.all()), "transition_many", self.lose)

    def lose(self, *_: Any, **__: Any) -> set[Any]:
        self.asked = True
        return set()
