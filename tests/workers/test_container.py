"""Container actions, with a program in the place of the engine that notes what it is asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.helpers import call
from workers import processes, runtimes
from workers.runtimes import Outcome, container

ENGINE = """#!{python}
import json, os, subprocess, sys, time
asked = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(asked) + "\\n")
if asked[0] == "version":
    sys.exit({broken!r} or 0)
elif asked[0] == "ps":
    print("left1 left2")
elif asked[0] == "inspect":
    print("true")
elif asked[0] == "run":
    command = asked[asked.index("example/image") + 1:]
    if command[0] == "engine-error":
        print("no such image", file=sys.stderr)
        sys.exit(125)
    sys.exit(subprocess.run(command).returncode)
"""


class Engine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"

    def install(self, name: str = "docker", *, broken: str = "") -> None:
        program = self.folder / name
        program.write_text(ENGINE.format(python=sys.executable, log=str(self.log), broken=broken))
        program.chmod(0o755)

    def asked(self, verb: str) -> list[list[str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [asked for asked in map(json.loads, lines) if asked[0] == verb]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    container._answers.cache_clear()
    folder = tmp_path / "bin"
    folder.mkdir()
    # what its commands are, and no engine that this host has
    for program in ("sh", "echo", "sleep", "true"):
        found = shutil.which(program)
        assert found
        (folder / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    yield Engine(folder)
    container._answers.cache_clear()


def run(*command: str, **values) -> Outcome:
    return runtimes.run(contained(*command, **values))


def contained(*command: str, **values):
    options = {"image": "example/image"} | values.pop("options", {})
    return call("container", list(command), options=options, **values)


def test_without_an_engine_it_is_not_offered_and_says_why(engine):
    assert container.why_not() == "neither podman nor docker is here"
    outcome = run("true")
    assert outcome.result["message"] == (
        "This worker runs no containers: neither podman nor docker is here."
    )
    assert outcome.result["failed_by"] == "worker"


def test_an_engine_that_does_not_answer_is_not_offered_and_told_why(engine, settings):
    engine.install(broken="Cannot connect to the daemon")
    assert container.why_not() == "docker does not answer: Cannot connect to the daemon"
    settings.MUSTER = replace(settings.MUSTER, container_engine="no-such-engine")
    assert container.why_not() == "there is no program 'no-such-engine'"


def test_the_first_engine_that_answers_is_taken(engine):
    engine.install("podman", broken="no")
    engine.install("docker")
    assert container.why_not() == ""
    assert container._engine() == "docker"


def test_the_command_line_says_what_the_action_may(engine, monkeypatch, settings):
    engine.install()
    settings.MUSTER = replace(settings.MUSTER, container_networks="backend, other")
    monkeypatch.setenv(processes.WORKER_TOKEN, "7.3")
    asked = contained(
        "echo", "{text}",
        parameters={"text": '{"a": 1}'},
        options={"network": "backend", "pull": "never", "env": {"A": "1"}},
        limits={"memory_mb": 64, "processes": 9, "cpus": 0.5, "file_size_mb": 2, "open_files": 32},
    )  # fmt: skip
    outcome = runtimes.run(asked)
    assert (outcome.event, outcome.result["result"]) == ("complete", {"a": 1})
    (argv,) = engine.asked("run")
    line = " ".join(argv)
    for part in (
        f"--name muster-{asked.execution_id}-1 --label muster.worker=7.3",
        "--pull never --network backend --read-only --tmpfs /tmp --cap-drop ALL",
        "--security-opt no-new-privileges",
        "--pids-limit 9 --memory 64m --memory-swap 64m --cpus 0.5",
        "--ulimit fsize=2097152 --ulimit nofile=32",
        f"--volume {asked.pack_path}:/pack:ro --workdir /work",
        "--env A=1",
        f"--env MSTR_EXECUTION_ID={asked.execution_id}",
        'example/image echo {"a": 1}',
    ):
        assert part in line
    assert engine.asked("rm") == [["rm", "--force", "--volumes", container.name_of(asked)]]


def test_it_has_no_network_if_the_action_says_nothing(engine):
    engine.install()
    run("true")
    assert "--network none" in " ".join(engine.asked("run")[0])


@pytest.mark.parametrize("network", ["host", "backend", "container:other", "ns:/proc/1/ns/net"])
def test_it_joins_no_network_that_the_installation_does_not_allow(engine, settings, network):
    settings.MUSTER = replace(settings.MUSTER, container_networks="front")
    engine.install()
    outcome = run("true", options={"network": network})
    assert (outcome.event, outcome.reason) == ("fail", "address_refused")
    assert (
        f"MUSTER_CONTAINER_NETWORKS of this worker does not allow the network {network!r}"
        in (outcome.result["message"])
    )
    assert engine.asked("run") == []


def test_what_the_engine_says_of_itself_is_a_failure_of_the_worker(engine):
    engine.install()
    outcome = run("engine-error")
    assert (outcome.event, outcome.result["failed_by"]) == ("fail", "worker")
    assert outcome.result["message"] == "The container engine could not run it: no such image"


def test_a_container_that_ran_out_of_memory_has_that_reason(engine):
    engine.install()
    outcome = run("sh", "-c", "exit 137", limits={"memory_mb": 64})
    assert outcome.reason == "memory_limit_exceeded"
    assert len(engine.asked("rm")) == 1


def test_a_container_is_removed_when_its_time_is_over(engine):
    engine.install()
    asked = contained("sleep", "60", timeout_seconds=0.5)
    outcome = runtimes.run(asked)
    assert outcome.reason == "run_timeout"
    assert engine.asked("rm") == [["rm", "--force", "--volumes", container.name_of(asked)]]
    assert processes.find(asked.execution_id) == []


def test_a_container_is_removed_when_it_is_cancelled(engine):
    engine.install()
    asked = contained("sleep", "60")
    thread = threading.Thread(target=lambda: runtimes.run(asked))
    thread.start()
    wait_until(lambda: engine.asked("run"))
    processes.terminate(asked.execution_id, 1, grace_seconds=1)
    thread.join(timeout=60)
    assert [argv[-1] for argv in engine.asked("rm")] == [container.name_of(asked)]


def test_a_container_is_removed_when_its_worker_is_killed(engine):
    engine.install()
    code = (
        "import django\ndjango.setup()\n"
        "from tests.workers.test_container import contained\nfrom workers import runtimes\n"
        "runtimes.run(contained('sleep', '60', execution_id='killed'))"
    )
    worker = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: engine.asked("run"), seconds=120)
    worker.kill()
    worker.wait()
    wait_until(lambda: engine.asked("rm"))
    assert engine.asked("rm") == [["rm", "--force", "--volumes", "muster-killed-1"]]
    assert processes.find("killed") == []


def test_the_next_life_of_a_worker_removes_what_the_last_one_left(engine):
    engine.install()
    assert container.remove_left("7.2") == 2
    assert engine.asked("ps") == [["ps", "-aq", "--filter", "label=muster.worker=7.2"]]
    assert engine.asked("rm") == [["rm", "--force", "--volumes", "left1", "left2"]]
