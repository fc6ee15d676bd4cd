"""A pack of StackStorm, imported and installed: its action runs, and its rule answers an event."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from orchestrator.automation import st2
from tests.automation.st2 import theirs
from tests.scenarios.installation import Installation

pytestmark = pytest.mark.parametrize("backend", ["embedded"], indirect=True)


def test_imported_actions_run_and_an_imported_rule_answers(
    shared: Installation, tmp_path: Path
) -> None:
    report = st2.import_pack(theirs.write(tmp_path / "theirs"), into=tmp_path / "ours")
    shared.command("pack", "install", str(report.folder))

    usage = shared.submit("disk_watch.usage", {"path": "/var"})
    broken = shared.submit("disk_watch.usage", {"path": "/broken"})
    kept = shared.submit("disk_watch.usage", {"path": "/kept"})
    hostile = shared.submit("disk_watch.say", {"text": "a'b; id", "whom": "$(id)"})
    rows = shared.wait_for_ends([usage, broken, kept, hostile])

    done, failed, refused, said = rows
    assert done.status == "completed", done.result
    assert done.result["result"] == {
        "path": "/var",
        "unit": "percent",
        "note": None,
        "fixed": "always",
        "limit": 90,
    }
    assert done.result["stdout"] == "measuring /var\n"
    assert "limit 90" in done.result["stderr"]
    assert (failed.status, failed.result["exception"]) == ("failed", "ActionFailed")
    assert (refused.status, refused.result["exception"]) == ("failed", "NotInMuster")
    assert "no datastore" in refused.result["message"]
    assert said.result["stdout"].startswith("a'b; id: to $(id) in /")

    payload = json.dumps({"path": "/var/log", "percent": 95})
    shared.command("event", "send", "disk_watch.measured", "--payload", payload)
    listed = ["execution", "list", "--action", "disk_watch.clean", "--json"]
    shared.wait_for(lambda: json.loads(shared.command(*listed))["items"], "no rule has answered")
    (item,) = json.loads(shared.command(*listed))["items"]
    row = shared.wait_for_end(UUID(item["id"]))
    assert (row.status, row.requested_by) == ("completed", "rule:disk_watch.full")
    assert row.result["stdout"] == "--mode=fast 7 /var/log\n"

    shared.start_sensor("of-st2")
    grown = ["event", "list", "--type", "disk_watch.grown", "--json"]
    shared.wait_for(lambda: json.loads(shared.command(*grown))["items"], "its sensor says nothing")
    (event,) = json.loads(shared.command(*grown))["items"]
    assert event["sent_by"] == "sensor:disk_watch.disk_sensor"


def test_command_of_the_import_is_one_of_ours(shared: Installation) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        shared.command("import-st2", "/nowhere")
