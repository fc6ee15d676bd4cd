"""Tasks, steps and templates over the REST API, on both databases."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.core import clock, cursors
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.state_machine import transition
from orchestrator.workflows import engine
from orchestrator.workflows.models import Step, StepDependency, StepExecution, Task, TaskTemplate
from orchestrator.workflows.models.tasks import QUARANTINED
from orchestrator.workflows.states import StepState, TaskState
from tests.core.api.client import BASE, Caller, pointers
from tests.factories import NOW, make_action, make_execution, make_step, make_task, make_template
from tests.workflows.laundry import DEFINITION, make_laundry

pytestmark = pytest.mark.usefixtures("database", "sent")

S = StepState


def after(parent: Step, child: Step) -> None:
    StepDependency.objects.create(parent=parent, child=child)


def queries(caller: Caller, path: str, **query: Any) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert caller.get(path, **query).status_code == 200
    return len(captured)


# --- tasks ---------------------------------------------------------------------------------------


def test_one_task_has_its_context_without_secrets_and_what_blocks_it(caller: Caller) -> None:
    task = make_laundry(
        TaskState.BLOCKED_BY_FAILURES,
        context={"shirts": 3, "door": "4711", "password": "x", "note": "a token"},
        tags=["blue"],
        initiator="ada",
    )
    make_step(S.COMPLETE, task=task, name="sort")
    make_step(S.ERROR, task=task, name="wash")
    shown = caller.get(f"/tasks/{task.pk}").json()
    assert shown["context"] == {"shirts": 3, "door": "***", "password": "***", "note": "a token"}
    assert shown["blocked_by"] == ["wash"]
    assert shown["steps"] == {"complete": 1, "error": 1}
    assert (shown["namespace"], shown["name"], shown["version"]) == ("tests", "laundry", "1.0.0")
    assert (shown["state"], shown["tags"], shown["initiator"]) == (task.state, ["blue"], "ada")


def test_tasks_are_listed_newest_first_in_pages_that_hold_each_once(caller: Caller) -> None:
    ids = [str(make_laundry().pk) for _ in range(5)]
    seen: list[str] = []
    path = "/tasks?limit=2"
    while path:
        answer = caller.get(path.removeprefix(BASE)).json()
        seen += [item["task_uuid"] for item in answer["items"]]
        assert all("context" not in item for item in answer["items"])
        path = answer["next"]
    assert seen == sorted(ids, reverse=True)


def test_filters_of_tasks(caller: Caller) -> None:
    failed = make_laundry(TaskState.ERROR, correlation_id="c", initiator="ada")
    running = make_laundry(parent_correlation_id="c", source_system="shop")
    other = make_task(template=make_template("other", version="2.0.0"))

    def found(**query: Any) -> set[str]:
        return {item["task_uuid"] for item in caller.get("/tasks", **query).json()["items"]}

    def ids(*tasks: Task) -> set[str]:
        return {str(task.pk) for task in tasks}

    assert found() == ids(failed, running, other)
    assert found(state="error") == found(open="false") == ids(failed)
    assert found(state=["error", "pending"]) == ids(failed, other)
    assert found(open="true") == ids(running, other)
    assert found(name="laundry") == ids(failed, running)
    assert found(version="2.0.0", namespace="tests") == ids(other)
    assert found(correlation_id="c") == found(initiator="ada") == ids(failed)
    assert found(parent_correlation_id="c") == found(source_system="shop") == ids(running)
    assert found(created_before="2026-01-01T00:00:00Z") == set()
    assert pointers(caller.get("/tasks", stat="error")) == ["?stat"]
    assert pointers(caller.get("/tasks", state="eror")) == ["?state.0"]


@pytest.mark.parametrize(
    ("query", "is_bounded"),
    [
        ({"state": "cancelled"}, True),
        ({"state": ["cancelled", "pending"], "initiator": "ada"}, True),
        ({"initiator": "ada"}, True),
        ({"source_system": "shop", "name": "laundry"}, True),
        ({"parent_correlation_id": "p"}, True),
        ({"correlation_id": "c", "initiator": "ada"}, False),
        ({"name": "laundry"}, False),
        ({"state": "steps_in_process", "version": "2.0.0"}, False),
    ],
)
def test_rare_tasks_are_found_by_pages_that_look_at_a_bounded_number_of_rows(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, query: dict[str, Any], is_bounded: bool
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    columns = {"initiator": "ada", "source_system": "shop"}
    ids = {"correlation_id": "c", "parent_correlation_id": "p"}
    other = make_template("other", version="2.0.0")

    def rare() -> None:
        make_laundry(TaskState.CANCELLED, **columns, **ids)

    rare()
    for _ in range(4):
        make_task(TaskState.STEPS_IN_PROCESS, template=other)
    rare()
    make_task(TaskState.STEPS_IN_PROCESS, template=other)
    sizes, path = [], f"/tasks?{urlencode(query, doseq=True)}"
    while path:
        page = caller.get(path.removeprefix(BASE)).json()
        sizes.append(len(page["items"]))
        path = page["next"]
    if is_bounded:
        assert sizes == [1, 0, 0, 1]
    else:
        assert sizes == [5 if "version" in query else 2]


def test_tasks_of_a_time_are_found_by_their_ids(caller: Caller) -> None:
    hours = [NOW + timedelta(hours=number) for number in range(4)]
    made = [make_laundry(pk=uuid7_floor(at), created_at=at) for at in hours]
    query = {"created_after": hours[1].isoformat(), "created_before": hours[3].isoformat()}
    with CaptureQueriesContext(connection) as captured:
        items = caller.get("/tasks", **query).json()["items"]
    assert [item["task_uuid"] for item in items] == [str(made[2].pk), str(made[1].pk)]
    (listing,) = [each["sql"] for each in captured if "DESC LIMIT" in str(each["sql"])]
    for comparison in (">=", "<="):
        assert f'"workflows_task"."id" {comparison} ' in listing


@pytest.mark.usefixtures("still_clock")
def test_queries_do_not_grow_with_rows(caller: Caller) -> None:
    def add() -> Task:
        task = make_laundry()
        steps = [make_step(task=task, name=f"s{number}") for number in range(8)]
        for parent in steps[:-1]:
            after(parent, steps[-1])
        return task

    task = add()
    of_one = ("", "/workflow_steps", "/graph", "/audit")
    paths = ["/tasks", *(f"/tasks/{task.pk}{noun}" for noun in of_one)]
    queries(caller, "/tasks")  # the first use of a token is noted
    before = {path: queries(caller, path) for path in paths}
    assert max(before.values()) <= 5
    for _ in range(4):
        add()
    for number in range(20):
        after(
            Step.objects.filter(task=task).earliest("pk"), make_step(task=task, name=f"t{number}")
        )
    assert {path: queries(caller, path) for path in paths} == before


def test_nothing_is_found_of_a_task_that_is_not_there(caller: Caller) -> None:
    for path in ("", "/graph", "/audit", "/workflow_steps"):
        for id in (uuid.uuid4(), "x"):
            assert caller.get(f"/tasks/{id}{path}").status_code == 404


# --- graph ---------------------------------------------------------------------------------------


def test_graph_has_every_step_and_edge(caller: Caller) -> None:
    task = make_laundry()
    wash = make_step(S.COMPLETE, task=task, attempts=1)
    dry = make_step(task=task, name="dry")
    after(wash, dry)
    shown = caller.get(f"/tasks/{task.pk}/graph").json()
    assert shown["is_made"] is True
    assert [(n["name"], n["state"], n["attempts"]) for n in shown["nodes"]] == [
        ("wash", "complete", 1),
        ("dry", "pending", 0),
    ]
    assert shown["nodes"][0]["step_uuid"] == str(wash.pk)
    assert shown["edges"] == [{"parent": "wash", "child": "dry"}]


def test_graph_of_a_task_without_steps_is_that_of_its_template(caller: Caller) -> None:
    shown = caller.get(f"/tasks/{make_laundry(TaskState.PENDING).pk}/graph").json()
    assert shown["is_made"] is False
    assert [(n["name"], n["state"]) for n in shown["nodes"]] == [("wash", None), ("dry", None)]
    assert shown["edges"] == [{"parent": "wash", "child": "dry"}]


ACCEPTED = [
    ("text/vnd.mermaid", "text/vnd.mermaid"),
    ("text/plain", "text/vnd.mermaid"),
    ("text/vnd.mermaid, application/json;q=0.5", "text/vnd.mermaid"),
    ("application/json", "application/json"),
    ("*/*", "application/json"),
    ("image/png", "application/json"),
]


def test_graph_is_mermaid_by_accept(caller: Caller) -> None:
    path = f"{BASE}/tasks/{make_laundry().pk}/graph"
    for accept, kind in ACCEPTED:
        response = caller.client.get(path, headers={"accept": accept})
        assert response["Content-Type"].startswith(kind)
        assert response.content.startswith(b"flowchart LR" if "mermaid" in kind else b"{")


# --- steps ---------------------------------------------------------------------------------------


def test_step_shows_what_becomes_of_it_next(caller: Caller) -> None:
    task = make_laundry()
    late = NOW + timedelta(days=9999)
    sort = make_step(S.WAITING_FOR_RETRY, task=task, name="sort")
    used_up = make_step(S.ERROR, task=task, name="used_up", attempts=3)
    make_step(S.WAITING_FOR_RETRY, task=task, name="early", next_retry_at=late)
    make_step(S.ERROR, task=task, name="for_good", attempts=1)
    waits = make_execution("scheduling", wait_reason="no workers available")
    make_step(S.ENQUEUED, task=task, name="patient", execution=waits)
    wash = make_step(task=task)
    lenient = make_step(task=task, name="lenient")
    for parent in (sort, used_up):
        after(parent, wash)
    StepDependency.objects.create(parent=used_up, child=lenient, tolerates_failure=True)

    items = caller.get(f"/tasks/{task.pk}/workflow_steps").json()["items"]
    assert [item["name"] for item in items] == [
        "sort", "used_up", "early", "for_good", "patient", "wash", "lenient"
    ]  # fmt: skip
    told = ("dependencies_satisfied", "retry_eligible", "ready_for_execution", "blocked_by")
    assert {item["name"]: tuple(item[name] for name in told) for item in items} == {
        "sort": (True, True, True, ""),
        "used_up": (True, False, False, "no attempts left"),
        "early": (True, False, False, "its backoff"),
        "for_good": (True, False, False, "it failed for good"),
        "patient": (True, False, False, "no workers available"),
        "wash": (False, False, False, "sort (waiting_for_retry), used_up (error)"),
        "lenient": (True, False, True, ""),
    }
    assert items[5]["waits_for"] == [
        {"name": "sort", "state": "waiting_for_retry"},
        {"name": "used_up", "state": "error"},
    ]
    assert (items[1]["attempts"], items[1]["max_attempts"]) == (3, 3)
    assert items[1]["last_failure_at"] is not None
    assert items[2]["next_retry_at"] == late.isoformat().replace("+00:00", "Z")


def test_step_after_a_crowd_names_the_first_and_counts_the_rest(caller: Caller) -> None:
    task = make_laundry()
    total = make_step(task=task, name="total")
    for number in range(12):
        after(make_step(task=task, name=f"row_{number:03}"), total)
    (item,) = caller.get(f"/tasks/{task.pk}/workflow_steps", name="total").json()["items"]
    assert item["waits_for_count"] == 12
    assert [each["name"] for each in item["waits_for"]] == [f"row_{n:03}" for n in range(5)]
    assert item["blocked_by"].endswith("row_004 (pending) and 7 more")


def test_one_step_has_its_result_and_its_executions(caller: Caller) -> None:
    task = make_laundry()
    runs = [make_execution("failed"), make_execution("completed")]
    result = {"clean": True, "pin": 1234}
    step = make_step(S.COMPLETE, task=task, result=result, execution=runs[1])
    for fence, execution in enumerate(runs, 1):
        StepExecution.objects.create(step=step, execution=execution, fence=fence)
    shown = caller.get(f"/tasks/{task.pk}/workflow_steps/{step.pk}").json()
    assert shown["last_attempted_at"] == shown["executions"][1]["created_at"]
    assert shown["result"] == {"clean": True, "pin": "***"}
    assert [(each["execution_id"], each["status"]) for each in shown["executions"]] == [
        (str(runs[0].pk), "failed"),
        (str(runs[1].pk), "completed"),
    ]
    assert shown["executions"][0]["worker"] == "w1"
    other = make_laundry()
    assert caller.get(f"/tasks/{other.pk}/workflow_steps/{step.pk}").status_code == 404


def test_steps_are_filtered_and_paged(caller: Caller) -> None:
    task = make_laundry()
    for number in range(5):
        state = S.ERROR if number == 3 else S.PENDING
        make_step(state, task=task, name=f"row_{number:03}", template_step="row")
    make_step(task=task, name="other")
    path = f"/tasks/{task.pk}/workflow_steps"
    seen: list[str] = []
    following: str | None = f"{path}?template_step=row&limit=2"
    while following:
        answer = caller.get(following.removeprefix(BASE)).json()
        seen += [item["name"] for item in answer["items"]]
        following = answer["next"]
    assert seen == [f"row_{number:03}" for number in range(5)]
    assert [i["name"] for i in caller.get(path, state="error").json()["items"]] == ["row_003"]


def test_audit_tells_who_did_what_oldest_first(caller: Caller) -> None:
    task = make_laundry()
    step, beside = make_step(task=task), make_step(task=task, name="beside")
    transition(step, "fail", now=NOW, actor="executor", reason="could not be requested")
    transition(beside, "cancel", now=NOW, actor="ada")
    transition(step, "reset", now=NOW, actor="ada", reason="mended")
    path = f"/tasks/{task.pk}/workflow_steps/{step.pk}/audit"
    told = ("event", "from_state", "to_state", "actor", "reason")
    items = caller.get(path).json()["items"]
    assert [tuple(item[name] for name in told) for item in items] == [
        ("fail", "pending", "error", "executor", "could not be requested"),
        ("reset", "error", "pending", "ada", "mended"),
    ]
    assert all(item["step_uuid"] == str(step.pk) and item["processor"] for item in items)
    first = caller.get(f"/tasks/{task.pk}/audit", limit=2).json()
    second = caller.get(first["next"].removeprefix(BASE)).json()
    events = [item["event"] for item in first["items"] + second["items"]]
    assert events == ["fail", "cancel", "reset"]
    assert pointers(caller.get(f"/tasks/{task.pk}/audit", cursor="AAAA")) == ["?cursor"]


# --- requests and repairs -------------------------------------------------------------------------


NEW: dict[str, Any] = {
    "namespace": "tests",
    "name": "laundry",
    "version": "1.0.0",
    "context": {"shirts": 3, "door": "4711"},
    "initiator": "ada",
    "source_system": "shop",
    "reason": "they are dirty",
    "tags": ["blue", "cotton"],
    "priority": 7,
    "correlation_id": "c-1",
    "parent_correlation_id": "c-0",
}


def test_task_is_accepted_and_every_field_kept(caller: Caller, installed: TaskTemplate) -> None:
    response = caller.post("/tasks", NEW)
    assert response.status_code == 201
    task, shown = Task.objects.get(), response.json()
    assert response["Location"] == f"{BASE}/tasks/{task.pk}"
    assert shown["state"] == task.state == "pending"
    assert (task.context, shown["context"]["door"]) == (NEW["context"], "***")
    for name, value in NEW.items():
        if name != "context":
            assert shown[name] == value
    assert (task.template_id, task.requested_by) == (installed.pk, "ci")


def test_strict_repeat_is_a_conflict_and_a_repeated_key_is_not(
    caller: Caller, installed: TaskTemplate
) -> None:
    assert caller.post("/tasks", NEW).status_code == 201
    response = caller.post("/tasks", NEW)
    assert (response.status_code, response.json()["type"]) == (
        409,
        "urn:muster:problem:task-exists",
    )
    keyed = NEW | {"idempotency_key": "k"}
    first, second = caller.post("/tasks", keyed), caller.post("/tasks", keyed)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["task_uuid"] == second.json()["task_uuid"]
    assert caller.post("/tasks", keyed | {"context": {}}).status_code == 409


def test_key_that_the_template_wants_is_missing(caller: Caller) -> None:
    make_action()
    caller.post("/templates", DEFINITION | {"identity_strategy": "caller_provided"})
    response = caller.post("/tasks", NEW)
    assert (response.status_code, pointers(response)) == (400, ["/idempotency_key"])
    assert caller.post("/tasks", NEW | {"idempotency_key": "k"}).status_code == 201


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"colour": 1}, "/colour"),
    ({"version": "9.9.9"}, "/name"),
    ({"priority": 101}, "/priority"),
    ({"context": {"shirts": "three"}}, "/context/shirts"),
    ({"tags": ["x" * 101]}, "/tags/0"),
    ({"tags": "blue"}, "/tags"),
    ({"context": {"a": "\0"}}, "/context/a"),
]


def test_refused_task_names_the_place_and_leaves_no_row(
    caller: Caller, installed: TaskTemplate
) -> None:
    for change, pointer in REFUSED:
        response = caller.post("/tasks", NEW | change)
        assert (response.status_code, pointers(response)) == (422, [pointer])
        assert not Task.objects.exists()


def test_everything_that_is_wrong_with_a_task_is_in_the_answer(
    caller: Caller, installed: TaskTemplate
) -> None:
    response = caller.post("/tasks", NEW | {"context": {"shirts": "three"}, "tags": ["x" * 101]})
    assert response.status_code == 422
    assert response.json() == {
        "type": "urn:muster:problem:invalid",
        "title": "The request is not valid",
        "status": 422,
        "detail": "/context/shirts: expected integer, found 'three'; "
        "/tags/0: expected at most 100 characters, found 101",
        "instance": "/api/v1/tasks",
        "errors": [
            {"pointer": "/context/shirts", "message": "expected integer, found 'three'"},
            {"pointer": "/tags/0", "message": "expected at most 100 characters, found 101"},
        ],
    }


def begun(caller: Caller) -> tuple[str, str]:
    """A task whose first step is enqueued, and the path of that step."""
    id = caller.post("/tasks", NEW).json()["task_uuid"]
    engine.advance(uuid.UUID(id), now=clock.now(), actor="executor")
    (step,) = caller.get(f"/tasks/{id}/workflow_steps", name="wash").json()["items"]
    return id, f"/tasks/{id}/workflow_steps/{step['step_uuid']}"


def test_cancelled_task_has_cancelled_steps_and_is_cancelled_once(
    caller: Caller, installed: TaskTemplate
) -> None:
    id, path = begun(caller)
    shown = caller.delete(f"/tasks/{id}?reason=wrong+colour").json()
    assert (shown["state"], shown["steps"]) == ("cancelled", {"cancelled": 2})
    assert caller.get(f"{path}/audit").json()["items"][-1]["reason"] == "wrong colour"
    assert caller.delete(f"/tasks/{id}").status_code == 409
    assert caller.delete(f"/tasks/{uuid.uuid4()}").status_code == 404


def test_task_in_error_is_released_with_a_reason(caller: Caller, installed: TaskTemplate) -> None:
    id, _ = begun(caller)
    path = f"/tasks/{id}"
    told = {"reason": "the pack is repaired"}
    assert caller.post(f"{path}/release", told).status_code == 409
    task = Task.objects.get(pk=id)
    transition(task, "give_up", now=NOW, actor="executor", advance_tries=QUARANTINED)
    assert caller.get(path).json()["is_quarantined"]
    assert caller.post(f"{path}/release", {"reason": " "}).status_code == 422
    shown = caller.post(f"{path}/release", told).json()
    assert (shown["state"], shown["is_quarantined"]) == ("waiting_for_retry", False)
    assert caller.post(f"/tasks/{uuid.uuid4()}/release", told).status_code == 404


def test_blocked_task_is_resolved_with_a_reason(caller: Caller, installed: TaskTemplate) -> None:
    id, path = begun(caller)
    told = {"reason": "done by the laundry next door"}
    refused = caller.post(f"/tasks/{id}/resolve", told)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:muster:problem:not-blocked")
    Task.objects.filter(pk=id).update(state=TaskState.BLOCKED_BY_FAILURES)
    assert caller.post(f"/tasks/{id}/resolve", {"reason": " "}).status_code == 422
    shown = caller.post(f"/tasks/{id}/resolve", told).json()
    assert (shown["state"], shown["steps"]) == ("resolved_manually", {"cancelled": 2})
    assert caller.get(f"{path}/audit").json()["items"][-1]["reason"] == told["reason"]
    assert caller.post(f"/tasks/{id}/resolve", told).status_code == 409


def test_step_in_process_is_repaired_by_force_only(caller: Caller, installed: TaskTemplate) -> None:
    _, path = begun(caller)
    action = {"action_type": "reset_for_retry", "reason": "it hangs"}
    refused = caller.patch(path, action)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:muster:problem:step-is-busy")
    shown = caller.patch(path, action | {"force": True}).json()
    statuses = [each["status"] for each in shown["executions"]]
    assert (shown["current_state"], statuses) == ("enqueued", ["cancelled", "requested"])
    events = [
        (e["event"], e["actor"], e["reason"]) for e in caller.get(f"{path}/audit").json()["items"]
    ]
    assert ("reset", "ci", "it hangs") in events


def test_each_repair_lets_the_task_go_on(caller: Caller, installed: TaskTemplate) -> None:
    id, path = begun(caller)
    body = {
        "action_type": "complete_manually",
        "reason": "washed by hand",
        "completion_data": {"result": {"pin": 7}},
        "force": True,
    }
    shown = caller.patch(path, body).json()
    assert (shown["current_state"], shown["result"]) == ("complete", {"pin": "***"})
    (dry,) = caller.get(f"/tasks/{id}/workflow_steps", name="dry").json()["items"]
    assert dry["current_state"] == "enqueued"
    following = f"/tasks/{id}/workflow_steps/{dry['step_uuid']}"
    resolve = {"action_type": "resolve_manually", "reason": "the sun did it", "force": True}
    assert caller.patch(following, resolve).json()["current_state"] == "resolved_manually"
    assert caller.get(f"/tasks/{id}").json()["state"] == "complete"
    assert caller.patch(following, resolve).status_code == 409


def test_step_is_cancelled_and_the_one_after_it_waits_for_it(
    caller: Caller, installed: TaskTemplate
) -> None:
    id, path = begun(caller)
    body = {"action_type": "cancel", "reason": "it burns", "cancelled_by": "ada@example.com"}
    busy = caller.patch(path, body)
    assert (busy.status_code, busy.json()["type"]) == (409, "urn:muster:problem:step-is-busy")
    shown = caller.patch(path, body | {"force": True}).json()
    assert (shown["current_state"], shown["executions"][-1]["status"]) == ("cancelled", "cancelled")
    (dry,) = caller.get(f"/tasks/{id}/workflow_steps", name="dry").json()["items"]
    assert (dry["current_state"], dry["blocked_by"]) == ("pending", "wash (cancelled)")
    assert caller.get(f"/tasks/{id}").json()["state"] == "blocked_by_failures"
    (entry,) = caller.get(f"/dlq/task/{id}").json()["items"]
    assert (entry["dlq_reason"], entry["detail"]) == ("manual_dlq", "cancelled by hand: wash")
    reasons = [record["reason"] for record in caller.get(f"{path}/audit").json()["items"]]
    assert "it burns (on behalf of ada@example.com)" in reasons
    assert caller.patch(path, body | {"force": True}).status_code == 409


def test_name_in_a_repair_is_kept_with_the_reason_and_the_evidence_with_the_step(
    caller: Caller, installed: TaskTemplate
) -> None:
    _, path = begun(caller)
    reset = {"action_type": "reset_for_retry", "reason": "it hangs", "reset_by": "ada@example.com"}
    caller.patch(path, reset | {"force": True})
    body = {
        "action_type": "complete_manually",
        "reason": "washed by hand",
        "completed_by": "bob@example.com",
        "completion_data": {"result": {}, "metadata": {"seen": "by eye", "token": "t"}},
        "force": True,
    }
    shown = caller.patch(path, body).json()
    assert shown["completion_metadata"] == {"seen": "by eye", "token": "***"}
    records = caller.get(f"{path}/audit").json()["items"]
    reasons = {record["reason"]: record["actor"] for record in records}
    assert reasons["it hangs (on behalf of ada@example.com)"] == "ci"
    assert reasons["washed by hand (on behalf of bob@example.com)"] == "ci"


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"action_type": "reset_for_retry", "reason": "x", "completed_by": "ada"}, ""),
    ({"action_type": "reset_for_retry", "reason": "x", "reset_by": ""}, "/reset_by"),
    ({"action_type": "reset_for_retry", "reason": "x", "reset_by": "a\nb"}, "/reset_by"),
    ({"action_type": "reset_for_retry", "reason": "x" * 490, "reset_by": "ada"}, "/reason"),
    ({"action_type": "cancel", "reason": "x", "completion_data": {"result": 1}}, ""),
    ({"action_type": "cancel", "reason": "x", "resolved_by": "ada"}, ""),
    ({"action_type": "reset_for_retry"}, "/reason"),
    ({"action_type": "reset_for_retry", "reason": ""}, "/reason"),
    ({"action_type": "reset_for_retry", "reason": " "}, "/reason"),
    ({"action_type": "reset", "reason": "x"}, "/action_type"),
    ({"action_type": "complete_manually", "reason": "x"}, ""),
    ({"action_type": "resolve_manually", "reason": "x", "completion_data": {"result": 1}}, ""),
    (
        {"action_type": "complete_manually", "reason": "x", "completion_data": {}},
        "/completion_data/result",
    ),
    (
        {
            "action_type": "complete_manually",
            "reason": "x",
            "force": True,
            "completion_data": {"result": {"pin": "seven"}},
        },
        "/completion_data/result",
    ),
]


def test_repair_that_makes_no_sense_is_refused(caller: Caller, installed: TaskTemplate) -> None:
    _, path = begun(caller)
    for body, pointer in SENSELESS:
        response = caller.patch(path, body)
        assert (response.status_code, pointers(response)) == (422, [pointer])
        assert caller.get(path).json()["current_state"] == "enqueued"


# --- templates -----------------------------------------------------------------------------------


def test_template_is_installed_once_and_shown(caller: Caller) -> None:
    make_action()
    first = caller.post("/templates", DEFINITION)
    assert (first.status_code, caller.post("/templates", DEFINITION).status_code) == (201, 200)
    assert first["Location"] == f"{BASE}/templates/tests/laundry/1.0.0"
    shown = caller.get("/templates/tests/laundry/1.0.0").json()
    assert shown == first.json()
    assert (shown["definition"], shown["identity_strategy"]) == (DEFINITION, "strict")
    (item,) = caller.get("/templates", namespace="tests").json()["items"]
    assert (item["name"], item["pack"], item["enabled"]) == ("laundry", None, True)
    assert "definition" not in item
    assert caller.get("/templates", name="x").json()["items"] == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"colour": "blue"}, "/colour"),
    ({"version": "one"}, "/version"),
    (
        {"steps": [{"name": "a", "action": "core.echo", "dependencies": ["b"]}]},
        "/steps/0/dependencies/0",
    ),
    ({"steps": [{"name": "a", "action": "core.nothing"}]}, "/steps"),
    ({"input_schema": {"properties": {"a": {"pattern": "(?=a)"}}}},
     "/input_schema/properties/a/pattern"),
    ({"input_schema": {"allOf": [{"$ref": "#"}]}}, "/input_schema/allOf/0/$ref"),
]  # fmt: skip


def test_wrong_template_is_refused_where_it_is_wrong(caller: Caller) -> None:
    make_action()
    for change, pointer in WRONG:
        response = caller.post("/templates", DEFINITION | change)
        assert (response.status_code, pointers(response)) == (422, [pointer])
        assert not TaskTemplate.objects.exists()


@pytest.mark.parametrize(
    "schema", [{"properties": {"shirts": {"pattern": "(?=a)"}}}, {"allOf": [{"$ref": "#"}]}]
)
def test_task_of_a_stored_template_that_would_be_refused_now_is_refused(
    caller: Caller, installed: TaskTemplate, schema: Any
) -> None:
    definition = installed.definition | {"input_schema": schema}
    TaskTemplate.objects.filter(pk=installed.pk).update(definition=definition)
    response = caller.post("/tasks", NEW)
    assert (response.status_code, pointers(response)) == (422, ["/context"])
    assert "cannot be used" in response.content.decode()


def test_version_that_tasks_have_run_is_final(caller: Caller) -> None:
    make_action()
    caller.post("/templates", DEFINITION)
    make_task(template=TaskTemplate.objects.get())
    response = caller.post("/templates", DEFINITION | {"description": "another"})
    assert (response.status_code, json.loads(response.content)["type"]) == (
        409,
        "urn:muster:problem:template-in-use",
    )


def test_there_is_no_such_template(caller: Caller) -> None:
    assert caller.get("/templates/tests/laundry/9.9.9").status_code == 404
