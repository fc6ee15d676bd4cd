"""What fails says why; what runs too long is stopped, with all that it started."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.installation import Installation

# a worker ends its actions by itself, whatever the database and the broker
pytestmark = pytest.mark.parametrize("backend", ["embedded"], indirect=True)


def test_python_action_that_raises_has_failed_with_its_message(shared: Installation) -> None:
    id = shared.submit("core.fail", {"message": "no such luck"})

    row = shared.wait_for_end(id)

    assert (row.status, row.reason, row.attempt) == ("failed", "action_failed", 1)
    result = row.result
    assert (result["error"], result["failed_by"]) == ("The action failed", "action")
    assert result["message"] == "packs.core.actions.Failed: no such luck"
    assert "no such luck" in result["traceback"]
    assert shared.story(id) == ["schedule", "claim", "fail"]


def test_command_that_exits_with_three_has_failed_with_its_output(shared: Installation) -> None:
    id = shared.submit("core.shell", {"argv": ["sh", "-c", "echo why >&2; exit 3"]})

    row = shared.wait_for_end(id)

    assert (row.status, row.reason) == ("failed", "action_failed")
    assert (row.result["exit_code"], row.result["stderr"]) == (3, "why\n")
    assert row.result["message"] == "The command ended with exit code 3."


def test_command_that_does_not_exist_has_failed(shared: Installation) -> None:
    row = shared.wait_for_end(shared.submit("core.shell", {"argv": ["no-such-command"]}))

    assert (row.status, row.reason) == ("failed", "action_failed")
    assert row.result["message"] == "Command not found: 'no-such-command'."


def test_python_action_in_a_busy_loop_is_stopped_at_its_limit(shared: Installation) -> None:
    id = shared.submit_note("busy", seconds=300, busy=True, timeout_seconds=3)

    row = shared.wait_for_end(id)

    assert (row.status, row.reason) == ("timeout", "run_timeout")
    assert row.result["message"] == "The action was stopped at its time limit of 3 s."
    assert 3 <= (row.ended_at - row.started_at).total_seconds() < 20
    assert len(shared.journal.starts("busy")) == 1
    assert shared.journal.ends("busy") == []
    assert shared.story(id) == ["schedule", "claim", "time_out"]


def test_nothing_that_an_action_started_survives_its_limit(shared: Installation) -> None:
    labels = {action: f"{action} with children" for action in ("note_shell", "note")}
    # long enough to start them on any machine
    limited: dict[str, Any] = {"seconds": 300, "children": 2, "timeout_seconds": 8}
    ids = [shared.submit_note(labels[action], action=action, **limited) for action in labels]
    for id in ids:
        shared.wait_for(lambda: len(shared.processes_of(id)) >= 4, "no children")  # noqa: B023

    rows = shared.wait_for_ends(ids)

    assert {(row.status, row.reason) for row in rows} == {("timeout", "run_timeout")}
    for id, label in zip(ids, labels.values(), strict=True):
        shared.wait_for(lambda: not shared.processes_of(id), "its children live on")  # noqa: B023
        assert shared.journal.ends(label) == []
    shared.check_accounts()


def test_worker_goes_on_after_failures_and_limits(shared: Installation) -> None:
    news: list[dict[str, Any]] = [{} for _ in range(4)]
    shared.wait_for_ends(shared.submit_many(news, "core.fail"))
    late = [shared.submit_note("late", seconds=300, timeout_seconds=0.1) for _ in range(4)]
    shared.wait_for_ends(late)

    rows = shared.wait_for_ends(shared.submit_many(news, "core.noop"))

    assert [row.status for row in rows] == ["completed"] * 4
    shared.check_accounts()
