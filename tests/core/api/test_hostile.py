"""Whatever is sent, the API answers it, and never with a fault of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.api.executions import ExecutionQuery, NewExecution
from orchestrator.core.models import Execution
from tests.core.api.client import Caller
from tests.factories import make_action

pytestmark = pytest.mark.django_db

BASE = "/api/v1"

# text with NUL and lone surrogates, numbers without bounds
texts = st.text(st.characters(), max_size=20) | st.sampled_from(["\0", "\ud800", "x" * 5000])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**4000), max_value=10**4000)
    | st.floats()
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(sorted(NewExecution.model_fields)) | texts
news = st.builds(
    lambda known, more: {"action_ref": "core.any", **known, **more},
    st.fixed_dictionaries({}, optional={"parameters": st.dictionaries(texts, values, max_size=4)}),
    st.dictionaries(fields, values, max_size=2),
)
quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def fuzzer(caller: Caller) -> Client:
    """A client that may send anything, and an action that takes anything."""
    make_action("core.any")
    return caller.client


def _post(client: Client, path: str, body: bytes) -> Any:
    before = Execution.objects.count()
    response = client.post(BASE + path, body, content_type="application/json")
    assert response.status_code in (200, 201, 400, 409, 413, 422), response.content
    if response.status_code >= 400:
        assert response["Content-Type"] == "application/problem+json"
        assert response.json()["errors"] or response.status_code != 422
        assert Execution.objects.count() == before
    return response


@quick
@given(new=news)
def test_any_request_is_accepted_and_kept_as_it_was_or_refused(fuzzer, new):
    response = _post(fuzzer, "/executions", json.dumps(new).encode())
    if response.status_code == 201:
        shown = fuzzer.get(f"{BASE}/executions/{response.json()['id']}")
        assert shown.status_code == 200
        assert shown.json()["parameters"] == new.get("parameters", {})


@quick
@given(several=st.lists(news, max_size=3))
def test_any_bulk_request_is_accepted_whole_or_refused(fuzzer, several):
    response = _post(fuzzer, "/executions/bulk", json.dumps({"executions": several}).encode())
    if response.status_code == 201:
        assert len(response.json()["ids"]) == len(several)


@quick
@given(body=st.binary(max_size=200))
def test_any_bytes_are_answered(fuzzer, body):
    _post(fuzzer, "/executions", body)


@quick
@given(
    query=st.dictionaries(
        st.sampled_from(sorted(ExecutionQuery.model_fields)) | texts,
        texts | st.datetimes().map(str) | st.integers().map(str),
        max_size=3,
    )
)
def test_any_query_is_answered(fuzzer, query):
    utf8 = {
        name.encode("utf-8", "surrogatepass"): value.encode("utf-8", "surrogatepass")
        for name, value in query.items()
    }
    for noun in ("executions", "dlq"):
        response = fuzzer.get(f"{BASE}/{noun}", utf8)
        assert response.status_code in (200, 422), response.content


@quick
@given(id=texts)
def test_any_path_is_answered(fuzzer, id):
    for noun in ("executions", "workers", "dlq", "actions", "nothing"):
        path = f"{BASE}/{noun}/{id.encode('utf-8', 'replace').decode()}"
        assert fuzzer.get(path).status_code in (200, 404, 405), path
