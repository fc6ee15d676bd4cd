"""Every operation, by each role, in and out of scope: `authz.csv` says what is answered.

The file is written and reviewed by hand. An operation that is not in it fails a test. A cell is a
status and, for answers with contents: `***`, without a character of any payload; `plain`, with it;
`listed`, with the thing among others; `none`, without it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.http import HttpResponse
from django.test import Client

from orchestrator.access import grants, identities, tokens
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core import clock
from orchestrator.core.api import api, plain_api
from orchestrator.core.frame import ADMIN, INSTALLATION, ROLES
from tests import principals
from tests.factories import make_task
from tests.security import world
from tests.security.world import CANARY, World

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent", "embedded_broker")]

PUBLIC = {"/health/live", "/health/ready"}
SIGNED = {"/hooks/{path}"}
"""Their callers sign what they send, and need no token: see tests/automation/api/test_hooks.py."""
PLAIN = "/v1/"


class Row(NamedTuple):
    """One line of the file."""

    method: str
    path: str
    case: str
    permission: str
    cells: dict[tuple[str, bool], str]
    """What is answered, by role and whether the thing is in scope."""

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.case}".strip()


def _read() -> list[Row]:
    with (Path(__file__).parent / "authz.csv").open(newline="") as file:
        return [
            Row(
                line["method"],
                line["path"],
                line["case"],
                line["permission"],
                {(role, s == "in"): line[f"{role} {s}"] for role in ROLES for s in ("in", "out")},
            )
            for line in csv.DictReader(file)
        ]


ROWS = _read()


@cache
def _documented() -> dict[tuple[str, str], dict[str, Any]]:
    faces = (api, "/"), (plain_api, PLAIN)
    return {
        (method.upper(), path): operation
        for face, prefix in faces
        for path, operations in face.get_openapi_schema(path_prefix=prefix)["paths"].items()
        for method, operation in operations.items()
    }


def _url(path: str) -> str:
    return path if path == "/metrics" or path.startswith(PLAIN) else f"/api/v1{path}"


def _as_paged(path: str) -> str:
    """The path at the face with pages, where the same things are asked for."""
    return "/" + path.removeprefix(PLAIN).removeprefix("/")


# --- the file ------------------------------------------------------------------------------------


def test_every_operation_has_a_row_and_every_row_an_operation() -> None:
    in_file = {(row.method, row.path) for row in ROWS} - {("GET", "/metrics")}
    assert in_file == _documented().keys()


def test_rows_name_the_permission_that_is_declared() -> None:
    documented = _documented()
    for row in ROWS:
        if row.path != "/metrics":
            declared = documented[row.method, row.path].get("x-permission", "none")
            assert declared == row.permission, row


def test_each_operation_declares_a_permission_or_says_why_not() -> None:
    known = grants.permissions()
    for (_, path), operation in _documented().items():
        if path not in PUBLIC:
            assert operation.get("x-permission") in known or operation["x-open-because"], path


# --- the answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_answers_are_those_of_the_file(row: Row) -> None:
    there = world.make()
    found = {}
    for (role, is_in_scope), cell in row.cells.items():
        text = there.text_of(role, is_in_scope=is_in_scope, is_unscoped=_is_unscoped(row))
        found[role, is_in_scope] = _answer(row, there, text, cell, is_admin=role == ADMIN)
    assert found == row.cells


def _is_unscoped(row: Row) -> bool:
    """Whether a role with a scope lacks the permission: it is about the whole installation."""
    known = grants.permissions().get(row.permission)
    return known is not None and INSTALLATION in known.about


def _answer(row: Row, there: World, text: str, cell: str, *, is_admin: bool) -> str:
    """The answer in the words of a cell; what the request changed is undone. Nobody but an admin
    sees a payload in it."""
    with transaction.atomic():
        request = REQUESTS.get((row.method, _as_paged(row.path), row.case))
        values, body = request(there, text) if request else ({}, None)
        path = row.path.format(**(_ids(there, row.case, text) | values))
        response = _sent(row.method, path, text, body)
        answer = _described(row, there, text, response, cell)
        assert is_admin or CANARY not in response.content.decode()
        transaction.set_rollback(True)
    return answer


def _sent(method: str, path: str, text: str, body: Any) -> Any:
    client = Client(
        headers={"authorization": f"Bearer {text}"},
        raise_request_exception=False,
        REMOTE_ADDR="192.0.2.7",
    )
    content = "" if body is None else json.dumps(body)
    response = client.generic(method, _url(path), content, content_type="application/json")
    return _begun(response) if response.streaming else response


def _begun(response: Any) -> HttpResponse:
    """The beginning of a stream that does not end by itself."""

    async def first() -> bytes:
        chunk: bytes = await anext(response.streaming_content)
        await response.streaming_content.aclose()
        return chunk

    return HttpResponse(async_to_sync(first)(), status=response.status_code)


def _described(row: Row, there: World, text: str, response: Any, cell: str) -> str:
    """The status, and what the cell asks about the contents."""
    status, content = response.status_code, response.content.decode()
    assert status < 500, content
    if status == 403:
        assert response.json()["type"] == "urn:muster:problem:forbidden"
        assert "needs the permission" in response.json()["detail"]
    if status >= 400:
        assert CANARY not in content
        return str(status)
    asked = cell.partition(" ")[2]
    if asked in ("***", "plain"):
        if CANARY in content:
            return f"{status} plain"
        return f"{status} ***" if "***" in content else f"{status} with neither"
    if asked in ("listed", "none"):
        name = NAMES[_as_paged(row.path)](there, row.case, text)
        return f"{status} {'listed' if name in content else 'none'}"
    return str(status)


def _ids(there: World, case: str, text: str) -> dict[str, Any]:
    """The thing of each path."""
    own = case == "own"
    return {
        "execution_id": there.execution.pk,
        "task_uuid": there.task.pk,
        "step_uuid": there.step.pk,
        "namespace": "shop",
        "owner": "shop",
        "name": "order",
        "version": "1.0.0",
        "ref": there.action.ref,
        "path": "nothing",
        "worker_id": there.worker.pk,
        "dlq_entry_uuid": there.entries.get(case, there.entries["task"]).dlq_entry_uuid,
        "token_id": (there.own_token(text) if own else there.foreign_token).pk,
        "identity_id": there.identity.pk,
        "grant_id": there.grant.pk,
        "event_id": there.enforcement.event_id,
        "enforcement_id": there.enforcement.pk,
        "trigger_id": there.enforcement.event.trigger_id,
        "inquiry_id": there.inquiry.pk,
        "order_id": there.order.pk,
    }


NAMES: dict[str, Callable[[World, str, str], str]] = {
    "/executions": lambda there, *_: str(there.execution.pk),
    "/tasks": lambda there, *_: str(there.task.pk),
    "/templates": lambda there, *_: '"order"',
    "/actions": lambda there, *_: '"shop.echo"',
    "/packs": lambda *_: '"shop"',
    "/workers": lambda there, *_: '"w1"',
    "/dlq": lambda there, *_: str(there.entries["task"].dlq_entry_uuid),
    "/dlq/stats": lambda there, *_: '"max_retries_exceeded"',
    "/dlq/investigation-queue": lambda there, *_: str(there.entries["task"].dlq_entry_uuid),
    "/dlq/staleness": lambda there, *_: str(there.task.pk),
    "/dlq/staleness/dry-run": lambda *_: STALE,
    "/analytics/performance": lambda there, *_: '"order"',
    "/analytics/bottlenecks": lambda there, *_: '"order"',
    "/tokens": lambda there, case, text: (
        (there.own_token(text) if case == "own" else there.foreign_token).prefix
    ),
    "/keys": lambda *_: '"shop/order"',
    "/identities": lambda there, *_: '"foreign"',
    "/trigger-types": lambda *_: '"shop.order"',
    "/triggers": lambda *_: '"shop.order"',
    "/rules": lambda *_: '"shop.ship"',
    "/sensors": lambda *_: '"shop.watch"',
    "/policies": lambda *_: '"one-order"',
    "/queues": lambda *_: '"order"',
    "/events": lambda there, *_: str(there.enforcement.event_id),
    "/enforcements": lambda there, *_: str(there.enforcement.pk),
    "/inquiries": lambda there, *_: str(there.inquiry.pk),
    "/bulk": lambda there, *_: str(there.order.pk),
}
"""What names the thing in a listing."""

Request = Callable[[World, str], tuple[dict[str, Any], Any]]
"""Values of the path other than `_ids`, and the body."""


def _repair(kind: str, **more: Any) -> Any:
    return {"action_type": kind, "reason": "a test", **more}


def _task_of(name: str) -> Any:
    return {
        "namespace": "shop", "name": name, "version": "1.0.0", "context": {"text": CANARY},
    }  # fmt: skip


STALE = "0189aaaa-0000-7000-8000-000000000001"


def _beside_a_stale_task(there: World) -> tuple[dict[str, Any], Any]:
    since = clock.now() - timedelta(hours=1)
    make_task(
        "steps_in_process", template=there.task.template, id=STALE, clock_started_at=since,
        state_entered_at=since,
    )  # fmt: skip
    return {}, None


EVENT = {"trigger": {"type": "shop.order"}, "payload": {"number": 2, "text": CANARY}}


def _rule(action: str) -> dict[str, Any]:
    return {"trigger": {"type": "shop.order"}, "action": {"ref": action}}


RESULT = {"completion_data": {"result": {"text": CANARY}}}
EXECUTION, TASK = "/executions", "/tasks"
STEP = "/tasks/{task_uuid}/workflow_steps/{step_uuid}"
ORDER = {"reason": "a test"}
SHIP = {"ref": "shop.ship"}
WATCH = {"ref": "shop.watch"}
POLICY = {"kind": "concurrency", "scope": "global", "limit": 3}
ONE_ORDER = {"ref": "one-order"}
REQUESTS: dict[tuple[str, str, str], Request] = {
    ("POST", EXECUTION, ""): lambda w, _: (
        {}, {"action_ref": w.action.ref, "parameters": {"text": CANARY}},
    ),
    ("POST", EXECUTION, "dangerous"): lambda w, _: (
        {}, {"action_ref": w.dangerous.ref, "parameters": {"text": CANARY}},
    ),
    ("POST", EXECUTION + "/bulk", ""): lambda w, _: (
        {}, {"executions": [{"action_ref": w.action.ref}]},
    ),
    ("POST", EXECUTION + "/bulk", "dangerous"): lambda w, _: (
        {}, {"executions": [{"action_ref": w.action.ref}, {"action_ref": w.dangerous.ref}]},
    ),
    ("POST", TASK, ""): lambda *_: ({}, _task_of("order")),
    ("POST", TASK, "dangerous"): lambda *_: ({}, _task_of("shell")),
    ("POST", TASK, "foreign action"): lambda *_: ({}, _task_of("mixed")),
    ("POST", "/tasks/{task_uuid}/release", ""): lambda w, _: ({"task_uuid": w.stuck.pk}, ORDER),
    ("POST", "/tasks/{task_uuid}/resolve", ""): lambda *_: ({}, ORDER),
    ("PATCH", STEP, ""): lambda *_: ({}, _repair("reset_for_retry")),
    ("PATCH", STEP, "result"): lambda *_: ({}, _repair("complete_manually", **RESULT)),
    ("PATCH", STEP, "result for dangerous"): lambda w, _: (
        {"task_uuid": w.dangerous_step.task_id, "step_uuid": w.dangerous_step.pk},
        _repair("complete_manually", **RESULT),
    ),
    ("POST", "/templates", ""): lambda w, _: (
        {}, world.definition("order", w.action.ref, "2.0.0"),
    ),
    ("POST", "/templates", "foreign action"): lambda w, _: (
        {}, world.definition("order", w.foreign.ref, "2.0.0"),
    ),
    **{
        ("POST", f"/workers/{{worker_id}}/{verb}", ""): lambda *_: ({}, ORDER)
        for verb in ("cordon", "uncordon", "drain")
    },
    ("POST", "/policies", ""): lambda *_: ({}, {"ref": "new", **POLICY}),
    ("GET", "/policies/{ref}", ""): lambda *_: (ONE_ORDER, None),
    ("PATCH", "/policies/{ref}", ""): lambda *_: (ONE_ORDER, {"limit": 2}),
    ("DELETE", "/policies/{ref}", ""): lambda *_: (ONE_ORDER, None),
    ("GET", "/policies/{ref}/buckets", ""): lambda *_: (ONE_ORDER, None),
    ("GET", "/packs/{name}", ""): lambda *_: ({"name": "shop"}, None),
    ("GET", "/packs/{name}/releases", ""): lambda *_: ({"name": "shop"}, None),
    ("DELETE", "/packs/{name}", ""): lambda *_: ({"name": "shop"}, None),
    ("PUT", "/queues/{name}", ""): lambda *_: ({}, {"max_running": 2}),
    **{
        ("POST", f"/queues/{{name}}/{verb}", ""): lambda *_: ({}, ORDER)
        for verb in ("pause", "resume")
    },
    ("POST", "/workers/{worker_id}/retire", ""): lambda w, _: ({"worker_id": w.gone.pk}, ORDER),
    ("POST", "/dlq", "execution"): lambda w, _: (
        {}, {"execution_id": str(w.execution.pk), "detail": "look"},
    ),
    ("POST", "/dlq", "task"): lambda w, _: ({}, {"task_uuid": str(w.stuck.pk), "detail": "look"}),
    ("PATCH", "/dlq/entry/{dlq_entry_uuid}", ""): lambda *_: ({}, {"note": "looked"}),
    ("GET", "/dlq/staleness/dry-run", ""): lambda w, _: _beside_a_stale_task(w),
    ("POST", "/tokens", ""): lambda w, _: ({}, {"name": "new", "owner": str(w.identity)}),
    ("POST", "/tokens/{token_id}/rotate", ""): lambda *_: ({}, {}),
    ("POST", "/keys", ""): lambda *_: ({}, {"reference": "shop/new", "value": CANARY}),
    ("POST", "/keys", "of the installation"): lambda *_: (
        {}, {"reference": "installation/new", "value": CANARY, "packs": ["*"]},
    ),
    ("POST", "/keys/{owner}/{name}/rotate", ""): lambda *_: ({}, {"value": f"{CANARY}-new"}),
    ("POST", "/identities", ""): lambda *_: ({}, {"name": "new"}),
    ("POST", "/identities/{identity_id}/enable", ""): lambda w, _: (
        {"identity_id": w.disabled.pk}, None,
    ),
    ("POST", "/identities/{identity_id}/grants", ""): lambda *_: ({}, {"gives": "operator"}),
    ("GET", "/trigger-types/{ref}", ""): lambda *_: ({"ref": "shop.order"}, None),
    ("POST", "/triggers", ""): lambda *_: ({}, {"type": "shop.order"}),
    ("POST", "/events", ""): lambda *_: ({}, EVENT),
    ("POST", "/events/bulk", ""): lambda *_: ({}, {"events": [EVENT]}),
    ("POST", "/events/{event_id}/replay", ""): lambda *_: ({}, {"rule": "shop.ship"}),
    ("GET", "/sensors/{ref}", ""): lambda *_: (WATCH, None),
    ("GET", "/sensors/{ref}/log", ""): lambda *_: (WATCH, None),
    ("POST", "/sensors/{ref}/restart", ""): lambda *_: (WATCH, None),
    ("POST", "/sensors/{ref}/enable", ""): lambda *_: (WATCH, None),
    ("POST", "/sensors/{ref}/disable", ""): lambda *_: (WATCH, None),
    ("POST", "/rules", ""): lambda w, _: ({}, {"ref": "shop.new", **_rule(w.action.ref)}),
    ("POST", "/rules", "dangerous"): lambda w, _: (
        {}, {"ref": "shop.new", **_rule(w.dangerous.ref)},
    ),
    ("POST", "/rules", "foreign action"): lambda w, _: (
        {}, {"ref": "shop.new", **_rule(w.foreign.ref)},
    ),
    ("GET", "/rules/{ref}", ""): lambda *_: (SHIP, None),
    ("GET", "/rules/{ref}/revisions", ""): lambda *_: (SHIP, None),
    ("PUT", "/rules/{ref}", ""): lambda w, _: (SHIP, _rule(w.action.ref)),
    ("PUT", "/rules/{ref}", "dangerous"): lambda w, _: (SHIP, _rule(w.dangerous.ref)),
    ("DELETE", "/rules/{ref}", ""): lambda *_: (SHIP, None),
    ("POST", "/rules/{ref}/enable", ""): lambda *_: (SHIP, None),
    ("POST", "/rules/{ref}/disable", ""): lambda *_: (SHIP, None),
    ("POST", "/rules/{ref}/test", ""): lambda w, _: (
        SHIP, {"event_id": str(w.enforcement.event_id)},
    ),
    ("POST", "/bulk", ""): lambda *_: ({}, {**ORDER, "verb": "cancel", "query": "status:open"}),
    ("POST", "/bulk/{order_id}/stop", ""): lambda *_: ({}, ORDER),
    ("POST", "/inquiries", ""): lambda *_: ({}, {"prompt": "Go?", "pack": "shop"}),
    ("POST", "/inquiries/{inquiry_id}/respond", ""): lambda *_: ({}, {"response": {}}),
    ("POST", "/inquiries/{inquiry_id}/cancel", ""): lambda *_: ({}, {}),
}  # fmt: skip


# --- who has no role -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "wrong", "revoked", "expired", "disabled"])
def test_who_is_not_known_is_refused_by_every_operation(kind: str) -> None:
    there = world.make()
    text = principals.token("x", principals.given("admin"))
    match kind:
        case "wrong":
            text = text[:-1] + ("0" if text[-1] != "0" else "1")
        case "revoked":
            tokens.revoke(ApiToken.objects.get(name="x"), by=principals.ROOT, now=clock.now())
        case "expired":
            ApiToken.objects.filter(name="x").update(expires_at=clock.now())
        case "disabled":
            Identity.objects.filter(service_name="x").update(disabled_at=clock.now())
        case _:
            text = ""
    for method, path in _documented():
        if path not in PUBLIC | SIGNED:
            response = _sent(method, path.format(**_ids(there, "", text)), text, None)
            assert response.status_code == 401, (method, path)


def test_new_token_may_do_nothing_until_it_is_granted_a_role() -> None:
    there = world.make()
    text = principals.token("new")
    operations = [each for each in _documented() if each[1] not in PUBLIC | SIGNED]
    assert len(operations) >= 37
    for method, path in [*operations, ("GET", "/metrics")]:
        response = _sent(method, path.format(**_ids(there, "", text)), text, None)
        assert response.status_code == 403, (method, path)
    owner = principals.service("new")
    identities.grant(owner, principals.given("viewer"), by=principals.ROOT, now=clock.now())
    assert _sent("GET", "/executions", text, None).status_code == 200


def test_foreign_host_is_refused_by_every_operation() -> None:
    there = world.make()
    text = principals.token("x", principals.given("admin"))
    for method, path in _documented():
        client = Client(headers={"authorization": f"Bearer {text}", "host": "evil.example"})
        url = _url(path).format(**_ids(there, "", text))
        assert client.generic(method, url).status_code == 400, (method, path)
