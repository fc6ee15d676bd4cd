"""What runbooks send with curl and make of the answers with jq, line by line, on both databases.

Each line is as an operator has it; only the token is added. The filter stands beside it in Python,
and where jq is installed, both must give the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from orchestrator.core import clock
from orchestrator.workflows.models import Step, TransitionRecord
from orchestrator.workflows.states import TaskState
from tests import commands
from tests.core.api.client import Caller, pointers
from tests.factories import make_execution, make_task, make_worker
from tests.workflows.play import Play, step

pytestmark = pytest.mark.usefixtures("database", "sent")

JQ = shutil.which("jq")
ONCE = {"retry": {"max_attempts": 1}}


@dataclass
class World:
    """A task that a failed step blocks, one that is stale, one that soon will be, and one whose
    state has no limit of its own."""

    play: Play
    entry: str
    stale: str
    warning: str

    def names(self) -> dict[str, str]:
        """What stands in braces in a runbook."""
        return {
            "task_uuid": str(self.play.id),
            "uuid": str(self.play.id),
            "step_uuid": str(self.play.step("step_2").pk),
            "step_2_uuid": str(self.play.step("step_2").pk),
            "dlq_entry_uuid": self.entry,
        }


@pytest.fixture
def curl(token: str) -> Caller:
    return Caller(token, base="")


@pytest.fixture
def world(curl: Caller) -> World:
    now = clock.now()
    play = Play(
        step("step_1"), step("step_2", "step_1", **ONCE), step("step_3", "step_2"),
        name="fulfill_order", namespace_name="order_processing", now=now - timedelta(minutes=1),
        lifecycle={"max_duration_minutes": 600},
    )  # fmt: skip
    play.end("step_1")
    play.fail("step_2", message="connection to the database timed out")

    def stuck(minutes: float, state: TaskState = TaskState.STEPS_IN_PROCESS) -> str:
        since = now - timedelta(minutes=minutes)
        times = {"clock_started_at": since, "created_at": since}
        return str(make_task(state, **times).pk)

    stuck(1_300, TaskState.PENDING)
    entry = curl.get(f"/v1/dlq/task/{play.id}").json()["dlq_entry_uuid"]
    return World(play, entry, stale=stuck(45), warning=stuck(25))


class Line(NamedTuple):
    """A line that reads."""

    url: str
    jq: str
    as_python: Callable[[Any], Any]
    """What the filter says."""
    expected: Callable[[World], Any]


def rows(answer: Any) -> Any:
    """The filter `.`, of an array."""
    assert isinstance(answer, list)
    return answer


def rated(health: str) -> Callable[[Any], Any]:
    return lambda answer: [row for row in rows(answer) if row["health_status"] == health]


def keys(*names: str) -> Callable[[Any], Any]:
    """Objects with these keys, of an array."""
    return lambda answer: [{name: row[name] for name in names} for row in rows(answer)]


ENTRY = (
    "dlq_entry_uuid", "task_uuid", "original_state", "dlq_reason", "dlq_timestamp",
    "task_snapshot", "resolution_status", "resolution_notes", "resolved_at", "resolved_by",
    "metadata", "created_at", "updated_at",
)  # fmt: skip
"""The columns of an entry."""

SNAPSHOT = (
    "task_uuid", "namespace", "task_name", "current_state", "time_in_state_minutes",
    "threshold_minutes", "age_minutes", "priority", "template_configuration", "detected_at",
)  # fmt: skip

STEP = (
    "current_state", "dependencies_satisfied", "retry_eligible", "ready_for_execution",
    "attempts", "max_attempts", "last_failure_at", "next_retry_at",
)  # fmt: skip

LINES = [
    Line(
        "/v1/dlq?resolution_status=pending&limit=50",
        "[.[] | .dlq_entry_uuid]",
        lambda answer: [row["dlq_entry_uuid"] for row in rows(answer)],
        lambda world: [world.entry],
    ),
    Line(
        "/v1/dlq?resolution_status=pending&limit=50&offset=1",
        "length",
        lambda answer: len(rows(answer)),
        lambda _: 0,
    ),
    Line(
        "/v1/dlq",
        f".[0] | [has({', '.join(json.dumps(name) for name in ENTRY)})] | all",
        lambda answer: answer[0].keys() >= set(ENTRY),
        lambda _: True,
    ),
    Line(
        "/v1/dlq/task/{task_uuid}",
        ".task_snapshot | {namespace, task_name, current_state}",
        lambda answer: {
            name: answer["task_snapshot"][name]
            for name in ("namespace", "task_name", "current_state")
        },
        lambda _: {
            "namespace": "order_processing",
            "task_name": "fulfill_order",
            "current_state": "blocked_by_failures",
        },
    ),
    Line(
        "/v1/dlq/task/{task_uuid}",
        f".task_snapshot | [has({', '.join(json.dumps(name) for name in SNAPSHOT)})] | all",
        lambda answer: answer["task_snapshot"].keys() >= set(SNAPSHOT),
        lambda _: True,
    ),
    Line(
        "/v1/dlq/task/{task_uuid}",
        ".task_snapshot.template_configuration.lifecycle",
        lambda answer: answer["task_snapshot"]["template_configuration"]["lifecycle"],
        lambda _: {"max_duration_minutes": 600},
    ),
    Line(
        "/v1/dlq/stats",
        "[.[] | {dlq_reason, total_entries, pending}]",
        keys("dlq_reason", "total_entries", "pending"),
        lambda _: [{"dlq_reason": "max_retries_exceeded", "total_entries": 1, "pending": 1}],
    ),
    Line(
        "/v1/dlq/investigation-queue?limit=10",
        "[.[] | {dlq_entry_uuid, task_uuid}]",
        keys("dlq_entry_uuid", "task_uuid"),
        lambda world: [{"dlq_entry_uuid": world.entry, "task_uuid": str(world.play.id)}],
    ),
    Line(
        "/v1/dlq/investigation-queue?limit=100",
        ".[0].priority_score > 500",
        lambda answer: answer[0]["priority_score"] > 500,
        lambda _: True,
    ),
    Line(
        "/v1/dlq/staleness?limit=100",
        "[.[] | {namespace_name, task_name, current_state, staleness_threshold_minutes, priority}]"
        " | .[0]",
        lambda answer: keys(
            "namespace_name",
            "task_name",
            "current_state",
            "staleness_threshold_minutes",
            "priority",
        )(answer)[0],
        lambda _: {
            "namespace_name": "tests",
            "task_name": "tidy",
            "current_state": "steps_in_process",
            "staleness_threshold_minutes": 30,
            "priority": 0,
        },
    ),
    Line(
        "/v1/dlq/staleness",
        "[.[] | .health_status]",
        lambda answer: [row["health_status"] for row in rows(answer)],
        lambda _: ["stale", "warning", "warning", "healthy"],
    ),
    Line(
        "/v1/dlq/staleness",
        '[.[] | select(.health_status == "warning")] | length',
        lambda answer: len(rated("warning")(answer)),
        lambda _: 2,
    ),
    Line(
        "/v1/dlq/staleness",
        '.[] | select(.health_status == "stale") | .task_uuid',
        lambda answer: next(row["task_uuid"] for row in rated("stale")(answer)),
        lambda world: world.stale,
    ),
    Line(
        "/v1/dlq/staleness",
        """[.[] | select(.health_status == "warning") | {
          task_uuid,
          current_state,
          time_in_state_minutes,
          staleness_threshold_minutes,
          threshold_percentage: ((.time_in_state_minutes / .staleness_threshold_minutes) * 100)
        } | .threshold_percentage | floor]""",
        lambda answer: [
            int((row["time_in_state_minutes"] / row["staleness_threshold_minutes"]) * 100)
            for row in rated("warning")(answer)
        ],
        lambda _: [90, 83],
    ),
    Line(
        "/v1/tasks/{uuid}/workflow_steps",
        "[.[] | {name, current_state}]",
        keys("name", "current_state"),
        lambda _: [
            {"name": "step_1", "current_state": "complete"},
            {"name": "step_2", "current_state": "error"},
            {"name": "step_3", "current_state": "pending"},
        ],
    ),
    Line(
        "/v1/tasks/{uuid}/workflow_steps",
        f"[.[] | [has({', '.join(json.dumps(name) for name in STEP)})] | all] | all",
        lambda answer: all(row.keys() >= set(STEP) for row in rows(answer)),
        lambda _: True,
    ),
    Line(
        "/v1/tasks/{uuid}/workflow_steps/{step_2_uuid}",
        "{attempts, max_attempts, retry_eligible, message: .error.message}",
        lambda answer: {
            "attempts": answer["attempts"],
            "max_attempts": answer["max_attempts"],
            "retry_eligible": answer["retry_eligible"],
            "message": answer["error"]["message"],
        },
        lambda _: {
            "attempts": 1,
            "max_attempts": 1,
            "retry_eligible": False,
            "message": "connection to the database timed out",
        },
    ),
]


def by_jq(filter: str, answer: bytes) -> Any:
    assert JQ is not None
    run = subprocess.run([JQ, filter], input=answer, capture_output=True, check=True, timeout=60)
    return json.loads(run.stdout)


def test_each_line_that_reads_shows_what_the_runbook_says(curl: Caller, world: World) -> None:
    for line in LINES:
        response = curl.get(line.url.format(**world.names()))
        assert response.status_code == 200, line
        expected = line.expected(world)
        assert line.as_python(response.json()) == expected, line
        if JQ is not None:
            assert by_jq(line.jq, response.content) == expected, line


# --- the resolution workflow ----------------------------------------------------------------------

RESET = {
    "action_type": "reset_for_retry",
    "reset_by": "operator@example.com",
    "reason": "Database connection pool fixed, resetting attempts for automatic retry",
}
RESOLVE = {
    "action_type": "resolve_manually",
    "resolved_by": "operator@example.com",
    "reason": "Non-critical validation step, bypassing",
}
COMPLETE: dict[str, Any] = {
    "action_type": "complete_manually",
    "completion_data": {
        "result": {"validation_status": "passed", "score": 100},
        "metadata": {"manually_verified": True, "verification_method": "manual_inspection"},
    },
    "reason": "Manual validation completed",
    "completed_by": "operator@example.com",
}
REPAIRS = [
    (RESET, "enqueued", "pending"),
    (RESOLVE, "resolved_manually", "enqueued"),
    (COMPLETE, "complete", "enqueued"),
]


@pytest.mark.parametrize(("body", "state", "following"), REPAIRS, ids=["reset", "resolve", "done"])
def test_each_option_of_the_resolution_unblocks_the_task(
    curl: Caller, world: World, body: dict[str, Any], state: str, following: str
) -> None:
    path = "/v1/tasks/{uuid}/workflow_steps/{step_2_uuid}".format(**world.names())
    shown = curl.patch(path, body).json()
    assert shown["current_state"] == state
    assert world.play.state == "steps_in_process"
    assert world.play.step("step_3").state == following
    names = {"reset_by", "resolved_by", "completed_by"}
    (given,) = (body[name] for name in names & body.keys())
    record = TransitionRecord.objects.filter(step=shown["step_uuid"], actor="ci").first()
    assert record is not None
    assert record.reason == f"{body['reason']} (on behalf of {given})"
    if body is COMPLETE:
        second = Step.objects.get(pk=shown["step_uuid"])
        assert second.result == COMPLETE["completion_data"]["result"]
        assert shown["completion_metadata"] == COMPLETE["completion_data"]["metadata"]


def test_investigation_is_closed_with_its_findings(curl: Caller, world: World) -> None:
    body = {
        "resolution_status": "manually_resolved",
        "resolution_notes": "Fixed database connection pool configuration.",
        "resolved_by": "operator@example.com",
        "metadata": {
            "root_cause": "database_connection_timeout",
            "fixed_step_uuid": world.names()["step_2_uuid"],
            "infrastructure_fix": "increased_connection_pool_size",
        },
    }
    shown = curl.patch(f"/v1/dlq/entry/{world.entry}", body).json()
    assert (shown["resolution_status"], shown["resolved_by"]) == ("manually_resolved", "ci")
    assert (shown["resolution_notes"], shown["metadata"]) == (
        body["resolution_notes"],
        body["metadata"],
    )
    assert shown["notes"][0]["on_behalf_of"] == "operator@example.com"
    assert curl.get(f"/v1/dlq/task/{world.play.id}").json() == shown
    assert curl.get("/v1/dlq?resolution_status=pending").json() == []


# --- an execution for a worker that has stopped ---------------------------------------------------


def test_execution_for_a_stopped_worker_is_accepted_and_for_none_that_exists_refused(
    curl: Caller, world: World
) -> None:
    stopped = make_worker("stopped", status="inactive")
    body = {"action_ref": "core.echo", "parameters": {"message": "test"}}
    accepted = curl.post("/api/v1/executions", body | {"worker_id": stopped.pk})
    assert accepted.status_code == 201
    shown = curl.get(f"/api/v1/executions/{accepted.json()['id']}").json()
    assert shown["status"] in ("requested", "scheduled")
    refused = curl.post("/api/v1/executions", body | {"worker_id": 999})
    assert (refused.status_code, pointers(refused)) == (422, ["/worker_id"])


# --- the face itself ------------------------------------------------------------------------------


def test_rows_are_those_of_the_other_face(curl: Caller, world: World) -> None:
    def items(path: str) -> Any:
        return curl.get(f"/api/v1{path}").json()["items"]

    def without_clock(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        moving = {
            "minutes_in_dlq", "priority_score", "time_in_state_minutes", "task_age_minutes",
            "threshold_percentage",
        }  # fmt: skip
        return [{k: v for k, v in row.items() if k not in moving} for row in found]

    steps = f"/tasks/{world.play.id}/workflow_steps"
    grouped = [f"/dlq/stats?by={grouping}" for grouping in ("subject", "queue")]
    reports = ("/dlq/stats", *grouped, "/dlq/investigation-queue", "/dlq/staleness")
    for path in (*reports, steps):
        assert without_clock(curl.get(f"/v1{path}").json()) == without_clock(items(path))
    (entry,) = curl.get("/v1/dlq").json()
    assert entry == items(f"/dlq/task/{world.play.id}")[0]
    assert items("/dlq")[0].items() <= entry.items()


def test_what_is_not_there_is_answered_like_everywhere(curl: Caller, world: World) -> None:
    assert curl.get("/v1/executions").status_code == 404
    assert curl.get(f"/v1/dlq/task/{uuid4()}").status_code == 404
    missing = curl.get(f"/v1/dlq/task/{world.stale}")
    assert "has no DLQ entry" in missing.json()["detail"]
    assert curl.post("/v1/dlq/stats").status_code == 405
    assert pointers(curl.get("/v1/dlq?reason=x")) == ["?reason"]
    assert pointers(curl.get(f"/v1/tasks/{world.play.id}/workflow_steps?state=error")) == ["?state"]
    assert curl.get("/v1/dlq")["Cache-Control"] == "no-store"
    stranger = Caller(None, base="")
    assert stranger.get("/v1/dlq").status_code == 401


# --- patterns -------------------------------------------------------------------------------------


def test_entries_are_counted_and_listed_by_namespace_template_and_time(
    curl: Caller, world: World
) -> None:
    body = {"task_uuid": world.stale, "detail": "looks odd"}
    other = curl.post("/api/v1/dlq", body).json()["dlq_entry_uuid"]
    letter = curl.post("/api/v1/dlq", {"execution_id": str(make_execution().pk), "detail": "d"})
    everything = [letter.json()["dlq_entry_uuid"], other, world.entry]

    def found(**query: Any) -> list[str]:
        listed = [row["dlq_entry_uuid"] for row in curl.get("/v1/dlq", **query).json()]
        paged = curl.get("/api/v1/dlq", **query).json()["items"]
        assert [row["dlq_entry_uuid"] for row in paged] == listed
        for base in ("/v1", "/api/v1"):
            answer = curl.get(f"{base}/dlq/stats", **query).json()
            counts = answer if base == "/v1" else answer["items"]
            assert sum(row["total_entries"] for row in counts) == len(listed)
        return listed

    def listed(*options: str) -> list[str]:
        items = commands.document("dlq", "list", *options)["items"]
        counts = commands.items("dlq", "stats", *options)
        assert sum(row["total_entries"] for row in counts) == len(items)
        return [row["dlq_entry_uuid"] for row in items]

    soon = (clock.now() + timedelta(minutes=1)).isoformat()
    recently = (clock.now() - timedelta(seconds=30)).isoformat()
    assert found() == everything
    assert found(namespace="order_processing") == [world.entry]
    assert found(namespace="order") == []
    assert found(template="tidy") == [other]
    assert found(template="tid") == []
    assert found(namespace="tests", template="tidy") == [other]
    assert found(namespace="order_processing", template="tidy") == []
    assert found(opened_after=recently) == everything[:2]
    assert found(opened_before=recently) == [world.entry]
    assert found(opened_after=soon) == []
    assert listed() == everything
    assert listed("--namespace", "tests", "--template", "tidy") == [other]
    assert listed("--opened-before", recently) == [world.entry]
    assert listed("--opened-after", "2030-01-31") == []
    assert pointers(curl.get("/v1/dlq/stats", opened_after="yesterday")) == ["?opened_after"]
