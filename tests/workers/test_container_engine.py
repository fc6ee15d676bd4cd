"""Container actions on a real engine, where `TEST_CONTAINER_IMAGE` names an image that is on this
host and has a shell: `podman import` makes one of a static busybox."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid

import pytest

from tests.waiting import wait_until
from tests.workers.helpers import call
from workers import processes, runtimes
from workers.runtimes import Outcome, container

IMAGE = os.environ.get("TEST_CONTAINER_IMAGE", "")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def engine():
    container._answers.cache_clear()
    if not IMAGE:
        pytest.skip("TEST_CONTAINER_IMAGE names no image")
    if reason := container.why_not():
        pytest.skip(reason)
    return container._engine()


@pytest.fixture
def name():
    return f"muster-test-{uuid.uuid4()}"


def contained(script: str, *arguments: str, **values):
    options = {"image": IMAGE, "pull": "never"} | values.pop("options", {})
    command = ["/bin/sh", "-c", script, "sh", *arguments]
    return call("container", command, options=options, **values)


def run(script: str, *arguments: str, **values) -> Outcome:
    return runtimes.run(contained(script, *arguments, **values))


def names(engine: str, *options: str) -> list[str]:
    listed = [engine, "ps", *options, "--format", "{{.Names}}"]
    return subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()


def test_parameters_come_as_arguments_and_on_its_input(engine):
    outcome = run(
        'read line; echo "$line" >&2; echo "[\\"$1\\"]"', "{text}", parameters={"text": "a b; $c"}
    )
    assert (outcome.event, outcome.result["result"]) == ("complete", ["a b; $c"])
    assert outcome.result["stderr"] == '{"text": "a b; $c"}\n'


def test_it_writes_its_working_directory_and_tmp_and_nothing_else(engine):
    script = (
        "for place in /work /tmp / /pack; do (echo > $place/a) && echo $place; done; "
        "while read -r key value; do case $key in CapEff:) echo $value;; esac; "
        "done < /proc/self/status"
    )
    outcome = run(script, options={"result": "none"})
    assert outcome.result["stdout"].splitlines() == ["/work", "/tmp", "0" * 16]  # noqa: S108


def test_its_end_is_that_of_its_command(engine):
    asked = contained("echo so far; exit 3")
    outcome = runtimes.run(asked)
    assert (outcome.reason, outcome.result["exit_code"]) == ("action_failed", 3)
    assert outcome.result["stdout"] == "so far\n"
    assert container.name_of(asked) not in names(engine, "--all")


def test_an_image_that_is_not_there_is_a_failure_of_the_worker(engine):
    outcome = run("true", options={"image": "localhost/muster-has-no-such-image"})
    assert (outcome.event, outcome.result["failed_by"]) == ("fail", "worker")
    assert "The container engine could not run it: " in outcome.result["message"]


def test_it_is_gone_when_its_time_is_over(engine):
    asked = contained("sleep 60", timeout_seconds=3)
    assert runtimes.run(asked).reason == "run_timeout"
    assert container.name_of(asked) not in names(engine, "--all")


def test_it_is_gone_when_it_is_cancelled(engine):
    asked = contained("sleep 60")
    thread = threading.Thread(target=lambda: runtimes.run(asked))
    thread.start()
    wait_until(lambda: container.name_of(asked) in names(engine))
    processes.terminate(asked.execution_id, 1, grace_seconds=1)
    thread.join(timeout=60)
    assert container.name_of(asked) not in names(engine, "--all")


def test_it_is_gone_when_its_worker_is_killed(engine):
    execution_id = str(uuid.uuid4())
    code = (
        "import django\ndjango.setup()\n"
        "from tests.workers.test_container_engine import contained\nfrom workers import runtimes\n"
        f"runtimes.run(contained('sleep 60', execution_id={execution_id!r}))"
    )
    worker = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: f"muster-{execution_id}-1" in names(engine), seconds=120)
    worker.kill()
    worker.wait()
    wait_until(lambda: f"muster-{execution_id}-1" not in names(engine, "--all"))


def test_the_next_life_of_a_worker_removes_what_the_last_one_left(engine, name):
    left = [engine, "run", "--detach", "--network", "none", "--name", name]
    left += ["--label", f"{container.LABEL}={name}", IMAGE, "/bin/sh", "-c", "sleep 60"]
    subprocess.run(left, check=True, capture_output=True)
    assert container.remove_left("another") == 0
    assert name in names(engine)
    assert container.remove_left(name) == 1
    assert name not in names(engine, "--all")
