"""One trace from a request to its end, across processes that only share database and broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests import collector
from tests.collector import Collected, Collector
from tests.scenarios.installation import Backend, Installation

CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
"""The trace and the span of a caller, as in the specification of `traceparent`."""

LAST = "execution completed"


@dataclass
class Traced:
    """An installation whose processes send their spans to a collector."""

    muster: Installation
    collector: Collector
    api: httpx.Client

    def request(self, action_ref: str, **fields: Any) -> UUID:
        trace_id, span_id = CALLER
        answer = self.api.post(
            "/api/v1/executions",
            json={"action_ref": action_ref} | fields,
            headers={"traceparent": f"00-{trace_id}-{span_id}-01"},
        )
        assert answer.status_code == 201, answer.text
        return UUID(answer.json()["id"])

    def spans(self, execution_id: UUID) -> list[Collected]:
        """The spans about an execution that have come so far."""
        key, own = "muster.execution.id", str(execution_id)
        found = [span for span in self.collector.spans if span.attributes.get(key) == own]
        assert {span.trace_id for span in found} <= {CALLER[0]}
        return sorted(found, key=lambda span: span.began_ns)

    def path(self, execution_id: UUID) -> list[tuple[str, str]]:
        """From the first span to the last, following parents: service and name of each, once all of
        them have come."""
        path = self.muster.wait_for(
            lambda: self._path_so_far(execution_id),
            "there is no way from the last span to the first",
        )
        for parent, child in pairwise(path):
            # one machine, but the parent of a span that came by a message may be a moment late
            assert parent.began_ns <= child.began_ns + 50_000_000
        return [(span.service, span.name) for span in path]

    def _path_so_far(self, execution_id: UUID) -> list[Collected]:
        """The path, or nothing as long as a part of it is missing."""
        by_id = {span.span_id: span for span in self.collector.spans}
        path = [span for span in self.spans(execution_id) if span.name == LAST]
        while path and path[0].parent_id != CALLER[1]:
            parent = by_id.get(path[0].parent_id)
            path = [parent, *path] if parent else []
        return path


@contextmanager
def installed(backend: Backend) -> Iterator[Traced]:
    """An API, an executor and a worker."""
    with collector.listening() as listener:
        muster = Installation(backend)
        muster.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": listener.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        try:
            muster.start_executor()
            muster.start_worker("w1")
            url = muster.serve()
            muster.ready()
            headers = {"Authorization": f"Bearer {muster.token('tracer')}"}
            with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
                yield Traced(muster, listener, client)
        finally:
            muster.close()
            backend.restore()


@pytest.fixture(scope="module")
def traced(embedded_backend: Backend) -> Iterator[Traced]:
    with installed(embedded_backend) as traced:
        yield traced


def path_of_a_request(*, placing: str) -> list[tuple[str, str]]:
    """The path of one that succeeds; `placing`: the service that chooses the worker."""
    return [
        ("muster-api", "POST /api/v1/executions"),
        ("muster-api", "execution request"),
        (placing, "execution schedule"),
        (placing, "execution dispatch"),
        ("muster-worker", "execution claim"),
        ("muster-worker", "execution run"),
        ("muster-worker", "execution end"),
        ("muster-executor", "execution completed"),
    ]


def test_a_request_is_one_trace_from_its_caller_to_its_end(traced: Traced) -> None:
    id = traced.request("core.echo", parameters={"text": "hello"})

    assert traced.path(id) == path_of_a_request(placing="muster-executor")
    spans = traced.spans(id)
    assert not any(span.is_error for span in spans)
    assert len({span.process for span in spans}) == 3
    assert "hello" not in str(spans)


def test_what_is_placed_where_it_is_accepted_has_the_same_trace(servers_backend: Backend) -> None:
    # each service with a login of its own, and its rights
    with installed(servers_backend) as traced:
        id = traced.request("core.echo", parameters={"text": "hello"})
        assert traced.path(id) == path_of_a_request(placing="muster-api")


def test_each_attempt_of_a_retried_execution_is_a_branch_of_its_trace(traced: Traced) -> None:
    id = traced.request(
        "core.shell",
        parameters={"argv": ["sh", "-c", "exit 3"]},
        retry={"max_attempts": 2, "retry_on": ["action_failed"], "backoff": "none"},
    )

    assert [name for _, name in traced.path(id)][-3:] == [
        "execution run",
        "execution end",
        "execution completed",
    ]
    of_attempts = {
        (attempt, f"execution {step}")
        for attempt in (1, 2)
        for step in ("schedule", "dispatch", "claim", "run", "end")
    }

    def steps() -> Counter[tuple[Any, str]]:
        spans = traced.spans(id)
        return Counter((span.attributes.get("muster.attempt"), span.name) for span in spans)

    traced.muster.wait_for(lambda: of_attempts <= steps().keys(), "spans are missing")
    assert set(steps().values()) == {1}
    spans = traced.spans(id)
    [request] = [span for span in spans if span.name == "execution request"]
    parents = {span.parent_id for span in spans if span.name == "execution schedule"}
    assert parents == {request.span_id}
    assert all(span.is_error for span in spans if span.name in ("execution run", "execution end"))


@pytest.mark.slow
def test_an_execution_that_the_dead_letters_ended_says_so_in_its_trace(traced: Traced) -> None:
    traced.muster.service("w1").kill_tree()  # its heartbeat stays fresh for a while
    id = traced.request("core.echo", parameters={"text": "never"}, queue_ttl_ms=200)

    assert [name for _, name in traced.path(id)][-4:] == [
        "execution schedule",
        "execution dispatch",
        "execution end",
        "execution completed",
    ]
    [end] = [span for span in traced.spans(id) if span.name == "execution end"]
    assert end.service == "muster-executor"
    assert end.is_error
    assert end.attributes["muster.actor"] == "dead_letter_handler"
    assert end.attributes["muster.reason"] == "queue_ttl_expired"
