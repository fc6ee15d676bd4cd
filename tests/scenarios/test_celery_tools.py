"""Celery's own tools on a real installation: inspect, status, events, control, and Flower.

One installation for the module. Its broker is RabbitMQ, as for those who use these tools.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from signal import SIGTERM
from typing import Any

import httpx
import pytest

from tests import servers
from tests.scenarios.installation import REPOSITORY, Backend, Installation, Service

pytestmark = pytest.mark.slow

HOST = socket.gethostname()
EXECUTOR, W1, PLAIN = f"executor@{HOST}", f"w1@{HOST}", f"plain@{HOST}"
INSPECTED = ("ping", "stats", "active_queues", "active", "registered", "scheduled", "report")


@pytest.fixture(scope="module")
def muster(servers_backend: Backend) -> Iterator[Installation]:
    installation = Installation(servers_backend, remote_control="inspect", celery_events="true")
    try:
        # the logins of executor and worker may do no more than the settings ask for
        installation.renew_rights()
        installation.start_executor()
        installation.start_worker("w1")
        celery = ("-m", "celery", "-A", "settings", "worker", "--loglevel", "INFO")
        installation.start("plain", *celery, "-c", "1", "-P", "threads", "-n", PLAIN)
        installation.ready()
        yield installation
    finally:
        installation.close()


@pytest.fixture(scope="module")
def flower(muster: Installation) -> Iterator[httpx.Client]:
    port = servers.free_port()
    arguments = ("flower", "--address=127.0.0.1", f"--port={port}")
    muster.start(
        "flower", "-m", "celery", "-A", "settings", *arguments, FLOWER_UNAUTHENTICATED_API="true"
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        muster.wait_for(lambda: _answers(client), "Flower does not answer")
        yield client


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthcheck").is_success
    except httpx.TransportError:
        return False


def celery(muster: Installation, *arguments: str) -> subprocess.Popen[str]:
    """`celery -A settings ...` from the root of the project."""
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "settings", *arguments],
        env=muster.environment,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=60)[0]


@pytest.fixture(scope="module")
def inspected(muster: Installation) -> dict[str, dict[str, Any]]:
    """What each command of `inspect` says of each node while an execution runs."""
    id = muster.submit_note("inspected", is_gated=True)
    muster.wait_for_start("inspected")
    asked = {
        name: celery(muster, "inspect", name, "--json", "--timeout", "5") for name in INSPECTED
    }
    told = {name: json.loads(said(process)) for name, process in asked.items()}
    muster.open_gate("inspected")
    muster.wait_for_end(id)
    return told | {"id": {"of": str(id)}}


def test_every_node_answers_by_the_name_of_its_service(inspected: dict[str, Any]) -> None:
    for name in INSPECTED:
        assert inspected[name].keys() == {EXECUTOR, W1, PLAIN}, name
    assert inspected["ping"][W1] == {"ok": "pong"}


def test_active_names_the_execution_and_stats_the_pool(inspected: dict[str, Any]) -> None:
    (running,) = inspected["active"][W1]
    assert running["name"] == "muster.run"
    assert inspected["id"]["of"] in running["id"]
    assert inspected["active"][EXECUTOR] == []
    assert inspected["stats"][W1]["pool"]["max-concurrency"] == 2
    assert "muster.run" in inspected["registered"][W1]
    assert inspected["scheduled"][W1] == []


def test_active_queues_are_all_that_a_process_consumes(
    muster: Installation, inspected: dict[str, Any]
) -> None:
    def names(node: str) -> set[str]:
        return {queue["name"] for queue in inspected["active_queues"][node]}

    id = muster.worker("w1").id
    maintenance = "scenario.maintenance.queue"
    assert names(W1) == {f"scenario.worker.{id}.executions", f"scenario.worker.{id}.cancel"}
    assert names(EXECUTOR) > {maintenance, "scenario.execution.requests.queue"}
    assert names(PLAIN) == {maintenance}


def test_no_password_is_in_any_answer(muster: Installation, inspected: dict[str, Any]) -> None:
    password = "guest:guest"
    assert password in muster.environment["BROKER_URL"]
    assert password not in json.dumps(inspected)
    secret_key = (muster.directory / "secret_key").read_text()
    assert secret_key not in json.dumps(inspected)


def test_plain_worker_says_what_it_does_not_do(muster: Installation) -> None:
    log = muster.service("plain").log()
    assert "it schedules no execution and runs no action" in log
    assert "manage.py executor; manage.py worker --name NAME" in log
    for name in ("executor", "w1"):
        assert "it schedules no execution" not in muster.service(name).log()


def test_status_and_report_work_from_the_root(muster: Installation) -> None:
    status, report = celery(muster, "status"), celery(muster, "report")
    lines = said(status)
    assert all(f"{node}: OK" in lines for node in (EXECUTOR, W1, PLAIN))
    text = said(report)
    assert "software -> celery:" in text
    assert "guest:guest" not in text


def test_who_may_look_may_not_steer(muster: Installation) -> None:
    for command in (("shutdown",), ("cancel_consumer", "scenario.maintenance.queue")):
        said(celery(muster, "control", "--timeout", "1", *command))
    assert said(celery(muster, "status")).count(": OK") == 3
    muster.wait_for_end(muster.submit_note("unimpressed"))


def test_remote_control_is_as_each_process_is_told(muster: Installation) -> None:
    deaf = muster.start_executor("deaf", MUSTER_REMOTE_CONTROL="off")
    steered = muster.start_worker("w9", MUSTER_REMOTE_CONTROL="on")
    muster.ready()
    assert f"deaf@{HOST}" not in said(celery(muster, "status"))
    said(celery(muster, "control", "shutdown", "-d", f"w9@{HOST}"))
    assert steered.exit_status() == 0
    deaf.signal(SIGTERM)
    assert deaf.exit_status() == 0


# --- events and Flower ---------------------------------------------------------------------------


def test_flower_sees_workers_and_each_execution(muster: Installation, flower: httpx.Client) -> None:
    for node in (EXECUTOR, W1):
        _wait_for_status(muster, flower, node, is_online=True)
    id = muster.submit_note("seen")
    muster.wait_for_end(id)

    def succeeded() -> list[dict[str, Any]]:
        tasks: dict[str, dict[str, Any]] = flower.get("/api/tasks").json()
        mine = [each for name, each in tasks.items() if str(id) in name]
        return [each for each in mine if each["state"] == "SUCCESS"]

    (seen,) = muster.wait_for(succeeded, "Flower does not see it")
    assert (seen["name"], seen["worker"]) == ("muster.run", W1)


def test_killed_worker_is_offline_and_comes_back_under_its_name(
    muster: Installation, flower: httpx.Client
) -> None:
    for node in (EXECUTOR, W1, PLAIN):
        _wait_for_status(muster, flower, node, is_online=True)
    before = _status(flower).keys()
    muster.service("w1").kill_tree()
    _wait_for_status(muster, flower, W1, is_online=False)
    muster.start_worker("w1")
    _wait_for_status(muster, flower, W1, is_online=True)
    assert _status(flower).keys() == before
    details = flower.get("/api/workers", params={"refresh": "true", "workername": W1}).json()
    queues = {queue["name"] for queue in details[W1]["active_queues"]}
    assert f"scenario.worker.{muster.worker('w1').id}.executions" in queues


def _status(flower: httpx.Client) -> dict[str, bool]:
    status: dict[str, bool] = flower.get("/api/workers", params={"status": "true"}).json()
    return status


def _wait_for_status(
    muster: Installation, flower: httpx.Client, node: str, *, is_online: bool
) -> None:
    muster.wait_for(lambda: _status(flower).get(node) is is_online, f"{node} stays as it was")


def test_events_dump_names_the_execution(muster: Installation) -> None:
    dump: Service = muster.start("events", "-m", "celery", "-A", "settings", "events", "--dump")
    muster.wait_for(lambda: "heartbeat" in dump.log(), "no heartbeat is seen")
    id = muster.submit_note("dumped")
    muster.wait_for_end(id)

    def kinds() -> bool:
        about = [line for line in dump.log().splitlines() if str(id) in line]
        wanted = ("task received", "task started", "task succeeded")
        return all(any(kind in line for line in about) for kind in wanted)

    muster.wait_for(kinds, "not all of its events are seen")
    dump.signal(SIGTERM)
    dump.exit_status()
