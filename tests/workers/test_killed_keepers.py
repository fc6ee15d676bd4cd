"""`kill -9` of the process beside a command: the attempt is lost, and nothing of it lives on."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import servers
from tests.waiting import wait_until
from tests.workers.helpers import call
from workers import processes, runtimes
from workers.runtimes import Call, Outcome

PYTHON = """
import subprocess, time

def linger(pids):
    child = subprocess.Popen(["setsid", "sh", "-c", "sleep 60 & sleep 60"])
    open(pids, "w").write(f"{child.pid}\\n")
    time.sleep(60)
"""
NODE = """
const {spawn} = require("child_process");
const child = spawn("setsid", ["sh", "-c", "sleep 60 & sleep 60"], {stdio: "ignore"});
require("fs").writeFileSync(process.argv[2], child.pid + "\\n");
setTimeout(() => {}, 60000);
"""
SHELL = "setsid sh -c 'sleep 60 & sleep 60' & echo $! > {}; sleep 60"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def shell(pack: Path, pids: Path) -> Call:
    return call("shell", ["sh", "-c", SHELL.format(pids)])


def python(pack: Path, pids: Path) -> Call:
    (pack / "lingering.py").write_text(PYTHON)
    (pack / "__init__.py").touch()
    return call(
        "python", f"{pack.name}.lingering:linger", pack_path=str(pack),
        options={"process": True}, parameters={"pids": str(pids)},
    )  # fmt: skip


def node(pack: Path, pids: Path) -> Call:
    (pack / "script.js").write_text(NODE)
    return call("node", ["script.js", str(pids)], pack_path=str(pack))


@pytest.mark.parametrize("make", [shell, python, pytest.param(node, marks=needs_node)])
def test_attempt_whose_keeper_is_killed_is_lost_and_all_that_it_started_ends(
    make: Callable[[Path, Path], Call], tmp_path: Path
) -> None:
    pack, pids = tmp_path / "pack_of_its_own", tmp_path / "pids"
    pack.mkdir()
    asked = make(pack, pids)
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(asked)))
    thread.start()
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    wait_until(lambda: len(processes.find(asked.execution_id)) >= 4)
    started = processes.find(asked.execution_id)
    assert int(pids.read_text()) in [process.pid for process in started]

    _keeper_of(started).kill()
    thread.join(60)

    (outcome,) = outcomes
    assert (outcome.reason, outcome.result["failed_by"]) == ("process_lost", "worker")
    assert "\n" not in outcome.result["message"]
    wait_until(lambda: not any(map(servers.is_alive, started)))
    assert processes.find(asked.execution_id) == []


def _keeper_of(started: list[psutil.Process]) -> Any:
    (keeper,) = [process for process in started if "keeper.py" in " ".join(process.cmdline())]
    return keeper
