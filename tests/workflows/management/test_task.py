"""`manage.py task`: tables that say what blocks, and one JSON document."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from django.core.management import call_command

from orchestrator.core import clock, cursors, relay
from orchestrator.core.state_machine import transition
from orchestrator.workflows import engine
from orchestrator.workflows.models import Step, StepDependency, StepExecution, Task, TaskTemplate
from orchestrator.workflows.models.tasks import QUARANTINED
from orchestrator.workflows.states import StepState, TaskState
from tests import commands
from tests.factories import make_execution, make_step, make_task, make_template
from tests.workflows.laundry import REF, make_laundry

pytestmark = pytest.mark.usefixtures("database", "sent")

S = StepState


run, document, refused = commands.of("task")
items = partial(commands.items, "task")


def stuck() -> Task:
    """A failed step, what waits for it, and a step between its attempts."""
    task = make_laundry(TaskState.BLOCKED_BY_FAILURES, context={"door": "door-4711"})
    wash = make_step(S.ERROR, task=task, error={"message": "[bold]no\nwater"})
    dry = make_step(task=task, name="dry")
    make_step(S.WAITING_FOR_RETRY, task=task, name="fold", next_retry_at=clock.now())
    StepDependency.objects.create(parent=wash, child=dry)
    StepExecution.objects.create(step=wash, execution=make_execution("failed"), fence=1)
    return task


# --- requesting and looking ----------------------------------------------------------------------


def test_create_prints_the_id_and_every_option_reaches_the_row(
    installed: TaskTemplate, tmp_path: Path
) -> None:
    file = tmp_path / "context.json"
    file.write_text('{"shirts": 1, "note": "from file"}')
    told = run(
        *("create", REF, "--context", f"@{file}", "--set", "shirts=3", "--initiator", "ada"),
        *("--source-system", "shop", "--reason", "dirty", "--tag", "blue", "--tag", "cotton"),
        *("--priority", "-5", "--correlation-id", "c", "--parent-correlation-id", "p"),
        *("--idempotency-key", "k"),
    )
    task = Task.objects.get()
    assert told == f"{task.pk}\n"
    assert task.context == {"shirts": 3, "note": "from file"}
    assert (task.initiator, task.source_system, task.reason) == ("ada", "shop", "dirty")
    assert (task.tags, task.priority, task.correlation_id) == (["blue", "cotton"], -5, "c")
    assert (task.parent_correlation_id, task.idempotency_key) == ("p", "k")
    assert task.requested_by.startswith("cli")


def test_what_cannot_be_requested_is_told(installed: TaskTemplate) -> None:
    assert "1.0.0" in refused("create", "tests/laundry/9.9.9")
    assert "/context/shirts" in refused("create", REF, "--set", "shirts=many")
    assert "expected NAMESPACE/NAME/VERSION" in refused("create", "laundry")
    assert not Task.objects.exists()
    run("create", REF)
    assert "strict" in refused("create", REF)


def test_wait_ends_with_the_task_and_fails_unless_it_is_complete(
    begun: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: engine.cancel(
        Task.objects.latest("pk").pk, reason="", actor="ada", now=clock.now()
    ))  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        call_command("task", "create", REF, "--set", "shirts=4", "--wait")
    assert ended.value.code == 1
    # scripts read the id from stdout
    assert tuple(capsys.readouterr()) == (f"{Task.objects.latest('pk').pk}\n", "cancelled\n")


def test_list_shows_progress_filters_and_pages() -> None:
    task = stuck()
    make_task(template=make_template("other"))
    told = run("list")
    assert str(task.pk) in told.split()
    assert "0/3" in told
    assert "wash: [bold]no water" in told
    assert "03-01 11:59:55" in told
    assert [i["name"] for i in document("list", "--template", "tests/laundry")["items"]] == [
        "laundry"
    ]
    assert [i["name"] for i in document("list", "--open", "--state", "pending")["items"]] == [
        "other"
    ]
    first = document("list", "--limit", "1")
    second = document("list", "--cursor", first["next_cursor"])
    assert [i["name"] for i in first["items"] + second["items"]] == ["other", "laundry"]
    assert "Request one" in run("list", "--state", "cancelled")


def test_list_looks_at_a_bounded_number_of_rows_for_a_state_without_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    cancelled = make_laundry(TaskState.CANCELLED, correlation_id="c")
    for _ in range(2):
        make_task()
    said = run("list", "--state", "cancelled")
    assert "No task matches." in said
    _, _, cursor = said.strip().partition("Looked at 2. Older ones: --cursor ")
    page = document("list", "--state", "cancelled", "--cursor", cursor)
    assert [item["task_uuid"] for item in page["items"]] == [str(cancelled.pk)]
    assert page["next_cursor"] is None
    found = document("list", "--state", "cancelled", "--correlation-id", "c")
    assert len(found["items"]) == 1


def test_show_and_steps_say_what_blocks_and_how_often_it_was_tried() -> None:
    task = stuck()
    for told in (run("show", str(task.pk)), run("steps", str(task.pk)[:20])):
        assert "no attempts left: [bold]no water" in told
        assert "wash (error)" in told
        assert "3/3" in told
        assert "door-4711" not in told
    assert "an operator, who repairs a step" in run("show", str(task.pk))
    assert document("show", str(task.pk))["blocked_by"] == ["wash"]
    lines = {line.split()[0]: line.split() for line in run("steps", str(task.pk)).splitlines()}
    wash = Step.objects.get(name="wash")
    assert lines["wash"][-1] == str(wash.pk)
    assert lines["fold"][-2:] == ["yes", "yes"]
    assert "retry eligible" in run("steps", str(task.pk)).splitlines()[0]
    page = " ".join(run("step", str(task.pk), "dry").split())
    assert "Dependencies not satisfied" in page
    assert "Retry eligible no" in page
    (item,) = document("steps", str(task.pk), "--state", "pending")["items"]
    assert (item["name"], item["dependencies_satisfied"]) == ("dry", False)


def test_step_is_found_by_name_and_by_id(begun: Task) -> None:
    step = Step.objects.get(name="wash")
    for text in ("wash", str(step.pk), str(step.pk)[:-2]):
        assert document("step", str(begun.pk), text)["step_uuid"] == str(step.pk)
    told = run("step", str(begun.pk), "wash")
    assert "core.echo" in told
    assert "enqueue" in told
    assert "did you mean 'wash'?" in refused("step", str(begun.pk), "wsh")


def test_audit_and_graph(begun: Task) -> None:
    id = str(begun.pk)
    events = [record["event"] for record in items("audit", id, "--step", "wash")]
    assert events == ["enqueue"]
    assert "initialize" in run("audit", id)
    assert "Older transitions are left out" in run("audit", id, "--limit", "1")
    lines = run("graph", id).splitlines()
    assert [line.split()[0] for line in lines if line.strip()][-2:] == ["wash", "dry"]
    assert run("graph", id, "--mermaid").startswith("flowchart LR\n")
    assert document("graph", id)["edges"] == [{"parent": "wash", "child": "dry"}]


# --- repairs -------------------------------------------------------------------------------------


def test_cancel(begun: Task) -> None:
    assert "is cancelled" in run("cancel", str(begun.pk), "--reason", "wrong colour")
    begun.refresh_from_db()
    assert begun.state == TaskState.CANCELLED
    assert "final" in refused("cancel", str(begun.pk))


def test_quarantined_task_is_shown_as_such_and_released(begun: Task) -> None:
    transition(begun, "give_up", now=clock.now(), actor="executor", advance_tries=QUARANTINED)
    assert "Quarantined" in run("show", str(begun.pk))
    assert document("show", str(begun.pk))["is_quarantined"]
    assert "--reason" in refused("release", str(begun.pk))
    assert "advanced again" in run("release", str(begun.pk), "--reason", "the pack is repaired")
    shown = document("show", str(begun.pk))
    assert (shown["state"], shown["is_quarantined"]) == ("waiting_for_retry", False)
    assert "not error" in refused("release", str(begun.pk), "--reason", "again")


def test_blocked_task_is_resolved(begun: Task) -> None:
    reason = ("--reason", "done by hand")
    assert "not blocked_by_failures" in refused("resolve", str(begun.pk), *reason)
    Task.objects.filter(pk=begun.pk).update(state=TaskState.BLOCKED_BY_FAILURES)
    assert "is resolved" in run("resolve", str(begun.pk), *reason)
    begun.refresh_from_db()
    assert begun.state == TaskState.RESOLVED_MANUALLY


def test_step_is_cancelled_and_the_task_can_be_closed(begun: Task) -> None:
    id = str(begun.pk)
    assert "--reason" in refused("cancel-step", id, "wash")
    by = ("--reason", "it burns", "--cancelled-by", "ops@example.com")
    assert "force" in refused("cancel-step", id, "wash", *by)
    printed = run("cancel-step", id, "wash", *by, "--force")
    assert "cancelled" in printed
    assert "ops@example.com" in printed
    assert "wash (cancelled)" in run("steps", id)
    assert "is resolved" in run("resolve", id, "--reason", "nobody needs it")


def test_each_repair_needs_a_reason_and_carries_the_task_on(begun: Task, tmp_path: Path) -> None:
    id = str(begun.pk)
    assert "--reason" in refused("reset-step", id, "wash")
    assert "force" in refused("reset-step", id, "wash", "--reason", "it hangs")
    by = ("--reason", "it hangs", "--reset-by", "night@example.com")
    reset = run("reset-step", id, "wash", *by, "--force")
    assert "enqueued" in reset
    assert "On behalf of night@example.com" in " ".join(reset.split())
    file, broken = tmp_path / "result.json", tmp_path / "broken.json"
    file.write_text('{"pin": 7}')
    broken.write_text("{")
    complete = ("complete-step", id, "wash", "--reason", "by hand", "--force")
    assert "broken.json: expected JSON" in refused(*complete, "--result", f"@{broken}")
    evidence = ("--metadata", '{"seen": "by eye"}', "--completed-by", "ops@example.com")
    printed = run(*complete, "--result", f"@{file}", *evidence).splitlines()
    _, _, wash_line, *facts = [" ".join(line.split()) for line in printed]
    assert wash_line.startswith("wash complete ")
    assert facts[0] == "Reason by hand"
    assert facts[1].startswith("By cli:")
    assert facts[2] == "On behalf of ops@example.com"
    wash = Step.objects.get(name="wash")
    assert (wash.result, wash.completion_metadata) == ({"pin": 7}, {"seen": "by eye"})
    reasons = [record["reason"] for record in items("audit", id, "--step", "wash")]
    assert "by hand (on behalf of ops@example.com)" in reasons
    assert "it hangs (on behalf of night@example.com)" in reasons
    by = ("--reason", "the sun did it", "--resolved-by", "day@example.com")
    resolved = run("resolve-step", id, "dry", *by, "--force")
    assert "On behalf of day@example.com" in " ".join(resolved.split())
    reasons = [record["reason"] for record in items("audit", id, "--step", "dry")]
    assert "the sun did it (on behalf of day@example.com)" in reasons
    begun.refresh_from_db()
    assert begun.state == TaskState.COMPLETE
    assert "final" in refused("resolve-step", id, "dry", "--reason", "again")


def test_every_failed_step_is_reset_at_once(begun: Task) -> None:
    step = Step.objects.get(name="wash")
    transition(step, "hand_in", now=clock.now(), actor="executor")
    transition(step, "fail", now=clock.now(), actor="executor", attempts=3)
    (item,) = items("reset-step", str(begun.pk), "--failed", "--reason", "water is back")
    assert (item["name"], item["current_state"], item["attempts"]) == ("wash", "enqueued", 1)
    message = refused("reset-step", str(begun.pk), "--failed", "--reason", "again")
    assert "none failed" in message


def test_broker_that_is_away_keeps_no_task_from_being_accepted(
    installed: TaskTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "send_soon", lambda messages: None)
    run("create", REF)
    assert Task.objects.count() == 1
