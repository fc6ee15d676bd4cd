"""Every route is documented, and none answers without a token."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

import pytest
from django.test import Client
from pydantic import BaseModel

from orchestrator.access.models import ApiToken
from orchestrator.core import clock
from orchestrator.core.api import api, plain_api
from tests.core.api.client import BASE, Caller

pytestmark = pytest.mark.django_db

OPEN = ("/health/", "/hooks/")
"""Probes, and what strangers send: these need no token."""


def _is_open(path: str) -> bool:
    return any(part in path for part in OPEN)


def _documented(*prefixes: str) -> list[tuple[str, str, dict[str, Any]]]:
    faces = {"/api/v1/": api, "/v1/": plain_api}
    return [
        (method, path, operation)
        for prefix in prefixes or faces
        for path, operations in faces[prefix]
        .get_openapi_schema(path_prefix=prefix)["paths"]
        .items()
        for method, operation in operations.items()
    ]


def test_plain_face_has_the_routes_of_runbooks_and_no_others():
    assert {(method, path) for method, path, _ in _documented("/v1/")} == {
        ("get", "/v1/dlq"),
        ("get", "/v1/dlq/task/{task_uuid}"),
        ("patch", "/v1/dlq/entry/{dlq_entry_uuid}"),
        ("get", "/v1/dlq/stats"),
        ("get", "/v1/dlq/investigation-queue"),
        ("get", "/v1/dlq/staleness"),
        ("get", "/v1/tasks/{task_uuid}/workflow_steps"),
        ("get", "/v1/tasks/{task_uuid}/workflow_steps/{step_uuid}"),
        ("patch", "/v1/tasks/{task_uuid}/workflow_steps/{step_uuid}"),
    }


def test_every_route_of_the_design_is_documented():
    documented = _documented("/api/v1/")
    assert {(method, path.removeprefix(BASE)) for method, path, _ in documented} == {
        ("post", "/executions"),
        ("get", "/executions"),
        ("post", "/executions/bulk"),
        ("get", "/executions/{execution_id}"),
        ("post", "/executions/{execution_id}/cancel"),
        ("get", "/executions/{execution_id}/logs"),
        ("get", "/executions/{execution_id}/logs/stream"),
        ("get", "/workers"),
        ("get", "/workers/{worker_id}"),
        ("get", "/workers/{worker_id}/events"),
        ("post", "/workers/{worker_id}/cordon"),
        ("post", "/workers/{worker_id}/uncordon"),
        ("post", "/workers/{worker_id}/drain"),
        ("post", "/workers/{worker_id}/retire"),
        ("post", "/stream/tickets"),
        ("get", "/keys"),
        ("post", "/keys"),
        ("post", "/keys/{owner}/{name}/rotate"),
        ("delete", "/keys/{owner}/{name}"),
        ("get", "/dlq"),
        ("post", "/dlq"),
        ("get", "/dlq/entry/{dlq_entry_uuid}"),
        ("get", "/dlq/task/{task_uuid}"),
        ("get", "/dlq/stats"),
        ("get", "/dlq/investigation-queue"),
        ("get", "/dlq/staleness"),
        ("get", "/dlq/staleness/dry-run"),
        ("get", "/analytics/performance"),
        ("get", "/analytics/bottlenecks"),
        ("patch", "/dlq/entry/{dlq_entry_uuid}"),
        ("get", "/tasks"),
        ("get", "/tasks/{task_uuid}"),
        ("post", "/tasks"),
        ("delete", "/tasks/{task_uuid}"),
        ("post", "/tasks/{task_uuid}/release"),
        ("post", "/tasks/{task_uuid}/resolve"),
        ("patch", "/tasks/{task_uuid}/workflow_steps/{step_uuid}"),
        ("get", "/tasks/{task_uuid}/graph"),
        ("get", "/tasks/{task_uuid}/audit"),
        ("get", "/tasks/{task_uuid}/workflow_steps"),
        ("get", "/tasks/{task_uuid}/workflow_steps/{step_uuid}"),
        ("get", "/tasks/{task_uuid}/workflow_steps/{step_uuid}/audit"),
        ("get", "/trigger-types"),
        ("get", "/trigger-types/{ref}"),
        ("get", "/triggers"),
        ("post", "/triggers"),
        ("get", "/triggers/{trigger_id}"),
        ("get", "/triggers/{trigger_id}/next"),
        ("get", "/sensors"),
        ("get", "/sensors/{ref}"),
        ("get", "/sensors/{ref}/log"),
        ("post", "/sensors/{ref}/restart"),
        ("post", "/sensors/{ref}/enable"),
        ("post", "/sensors/{ref}/disable"),
        ("post", "/events"),
        ("post", "/events/bulk"),
        ("get", "/events"),
        ("get", "/events/{event_id}"),
        ("post", "/events/{event_id}/replay"),
        ("post", "/hooks/{path}"),
        ("put", "/hooks/{path}"),
        ("get", "/rules"),
        ("post", "/rules"),
        ("get", "/rules/{ref}"),
        ("put", "/rules/{ref}"),
        ("delete", "/rules/{ref}"),
        ("get", "/rules/{ref}/revisions"),
        ("post", "/rules/{ref}/enable"),
        ("post", "/rules/{ref}/disable"),
        ("post", "/rules/{ref}/test"),
        ("get", "/enforcements"),
        ("get", "/enforcements/{enforcement_id}"),
        ("get", "/inquiries"),
        ("post", "/inquiries"),
        ("get", "/inquiries/{inquiry_id}"),
        ("post", "/inquiries/{inquiry_id}/respond"),
        ("post", "/inquiries/{inquiry_id}/cancel"),
        ("get", "/bulk"),
        ("post", "/bulk"),
        ("get", "/bulk/{order_id}"),
        ("get", "/bulk/{order_id}/refusals"),
        ("post", "/bulk/{order_id}/stop"),
        ("get", "/policies"),
        ("post", "/policies"),
        ("get", "/policies/{ref}"),
        ("patch", "/policies/{ref}"),
        ("delete", "/policies/{ref}"),
        ("get", "/policies/{ref}/buckets"),
        ("get", "/queues"),
        ("get", "/queues/{name}"),
        ("put", "/queues/{name}"),
        ("post", "/queues/{name}/pause"),
        ("post", "/queues/{name}/resume"),
        ("get", "/queues/{name}/tickets"),
        ("get", "/templates"),
        ("post", "/templates"),
        ("get", "/templates/{namespace}/{name}/{version}"),
        ("get", "/packs"),
        ("post", "/packs"),
        ("get", "/packs/{name}"),
        ("get", "/packs/{name}/releases"),
        ("delete", "/packs/{name}"),
        ("get", "/actions"),
        ("get", "/actions/{ref}"),
        ("get", "/tokens"),
        ("post", "/tokens"),
        ("post", "/tokens/{token_id}/rotate"),
        ("delete", "/tokens/{token_id}"),
        ("get", "/identities"),
        ("post", "/identities"),
        ("get", "/identities/{identity_id}"),
        ("post", "/identities/{identity_id}/disable"),
        ("post", "/identities/{identity_id}/enable"),
        ("post", "/identities/{identity_id}/grants"),
        ("delete", "/identities/{identity_id}/grants/{grant_id}"),
        ("get", "/health/live"),
        ("get", "/health/ready"),
    }


@pytest.mark.parametrize(
    ("method", "path"), [(m, p) for m, p, _ in _documented() if not _is_open(p)]
)
def test_documented_route_refuses_without_a_token(method, path):
    response = getattr(Caller(None, base=""), method)(path.replace("{", "").replace("}", ""))
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "path", "operation"), _documented())
def test_documentation_is_complete(method, path, operation):
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    for status, response in operation["responses"].items():
        streamed = "text/event-stream" if path.endswith("/stream") else "application/json"
        kind = streamed if status < 400 else "application/problem+json"
        assert response["content"][kind]["schema"]
    if not _is_open(path):
        assert operation["security"] == [{"BearerToken": []}]
        assert {401, 403, 500, 503} <= operation["responses"].keys()
    without_body = ("/cancel", "/disable", "/enable", "/restart", "/tickets")
    if method in ("post", "patch", "put") and not path.endswith(without_body):
        kind = "application/gzip" if path.endswith("/packs") else "application/json"
        assert kind in operation["requestBody"]["content"]


@pytest.mark.parametrize(
    "header",
    [
        "Bearer", "Bearer ", "Basic {}", "Token {}", "{}", "Bearer x{}", "Bearer {}x",
        "Bearer mst_é", "Bearer \xff\xfe", "bearer,{}",
    ],
)  # fmt: skip
def test_other_authorization_is_refused(token, header):
    client = Client(headers={"authorization": header.format(token)})
    response = client.get(f"{BASE}/executions")
    assert response.status_code == 401
    assert response["Content-Type"] == "application/problem+json"
    assert token not in response.content.decode()


def test_scheme_is_read_in_any_case(token):
    assert (
        Client(headers={"authorization": f"bearer {token}"}).get(f"{BASE}/workers").status_code
        == 200
    )


def test_revoked_and_expired_tokens_are_refused(caller):
    assert caller.get("/workers").status_code == 200
    ApiToken.objects.update(expires_at=clock.now())
    assert 'error="invalid_token"' in caller.get("/workers")["WWW-Authenticate"]
    ApiToken.objects.update(expires_at=None, revoked_at=clock.now())
    assert caller.get("/workers").status_code == 401


def test_session_of_a_staff_user_opens_nothing(client, admin_user):
    client.force_login(admin_user)
    assert client.get(f"{BASE}/executions").status_code == 401


def test_caller_without_a_token_is_refused_before_the_body_is_looked_at():
    assert Caller(None).send("/executions", b"\xff" * 100).status_code == 401


def test_each_name_of_the_document_is_one_model():
    """Of two models with one name, the document would describe both by the last."""
    documented = set().union(*(
        face.get_openapi_schema(path_prefix=prefix)["components"]["schemas"]
        for prefix, face in (("/api/v1/", api), ("/v1/", plain_api))
    ))  # fmt: skip
    models: dict[str, set[type]] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("orchestrator.") and ".api" in name:
            for each in vars(module).values():
                if isinstance(each, type) and issubclass(each, (BaseModel, Enum)):
                    models.setdefault(each.__name__, set()).add(each)
    assert documented & models.keys()
    assert {name for name in documented if len(models.get(name, ())) > 1} == set()
