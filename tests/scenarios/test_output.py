"""Output of running executions, followed by several, through every face, whatever dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import psutil
import pytest

from tests.scenarios.installation import REPOSITORY, SOON_LOST, Installation

TOKEN = "sk_live_a_rather_long_token_0123456789"
SAID = "token *** said"


def chatter(muster: Installation, gate: str) -> UUID:
    parameters = {"gate": str(muster.directory / gate), "token": TOKEN}
    return muster.submit("scenario.chatter", parameters)


def logs(muster: Installation, id: UUID, *arguments: str) -> str:
    return muster.command("execution", "logs", str(id), *arguments)


@contextmanager
def following(muster: Installation, id: UUID, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`manage.py execution logs -f`, as long as it takes."""
    command = [sys.executable, "manage.py", "execution", "logs", str(id), "-f", *arguments]
    with subprocess.Popen(
        command,
        env=muster.environment,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_output(muster: Installation, id: UUID, text: str) -> None:
    muster.wait_for(lambda: text in logs(muster, id), f"{text!r} was not printed")


def test_two_follow_what_runs_and_see_no_secret(shared: Installation) -> None:
    muster = shared
    id = chatter(muster, "followed")
    with following(muster, id) as first, following(muster, id, "--json") as second:
        wait_for_output(muster, id, SAID)
        assert muster.execution(id).status == "running"
        (muster.directory / "followed").touch()
        read, lines = first.communicate(timeout=60)[0], second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert muster.wait_for_end(id).status == "completed"
    for text in (read, "".join(json.loads(line)["text"] for line in lines.splitlines())):
        assert "attempt 1\n" in text
        assert SAID in text
        assert "to stderr\n" in text
        assert "the end\n" in text
        assert TOKEN[:12] not in text
        assert TOKEN[-12:] not in text
    # what was followed is what the result has
    assert logs(muster, id, "--stream", "stdout") == muster.execution(id).result["stdout"]


def test_stream_of_events_is_resumed_where_it_broke(shared: Installation) -> None:
    muster = shared
    url, token = muster.serve(), muster.token("reader", "viewer")
    muster.ready()
    allowed = muster.token("auditor", "admin")
    id = chatter(muster, "streamed")
    wait_for_output(muster, id, SAID)
    path = f"{url}/api/v1/executions/{id}/logs/stream?stream=stdout"
    headers = {"Authorization": f"Bearer {allowed}"}
    with httpx.stream("GET", path, headers=headers, timeout=60) as response:
        first = next(_events(response))
    assert "attempt 1\n" in first["data"]["text"]
    (muster.directory / "streamed").touch()
    headers["Last-Event-ID"] = first["id"]
    with httpx.stream("GET", path, headers=headers, timeout=60) as response:
        rest = list(_events(response))
    text = "".join(each["data"]["text"] for each in rest[:-1])
    assert "attempt 1" not in text
    assert text.endswith("the end\n")
    assert (rest[-1]["event"], rest[-1]["data"]["status"]) == ("end", "completed")
    # without `payloads.read` it is as hidden as the result
    answer = httpx.get(
        f"{url}/api/v1/executions/{id}/logs", headers={"Authorization": f"Bearer {token}"}
    )
    assert (answer.status_code, answer.json()["text"]) == (200, "***")


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    fields: dict[str, Any] = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            continue
        if not line:
            if fields:
                yield fields | {"data": json.loads(fields["data"])}
            fields = {}
            continue
        name, _, value = line.partition(": ")
        fields[name] = value


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
@pytest.mark.slow
def test_output_of_a_killed_worker_stays_and_the_next_attempt_follows(
    install: Callable[..., Installation],
) -> None:
    muster = install(**SOON_LOST)
    muster.start_executor()
    worker = muster.start_worker("w1")
    muster.ready()
    id = chatter(muster, "killed")
    wait_for_output(muster, id, SAID)
    with following(muster, id, "--stream", "stdout") as follower:
        assert follower.stdout is not None
        begun = follower.stdout.readline()
        worker.kill_tree()
        muster.start_worker("w2")
        muster.wait_for(lambda: muster.execution(id).attempt == 2, "there is no second attempt")
        (muster.directory / "killed").touch()
        # not by `communicate`, which does not know what `readline` has kept back
        read = begun + follower.stdout.read()
        follower.wait(60)
    assert follower.returncode == 0, read
    assert muster.wait_for_end(id).attempt == 2
    first, _, second = read.partition("--- attempt 2 ---\n")
    assert "attempt 1\n" in first
    assert SAID in first
    assert "the end" not in first
    assert second.startswith("attempt 2\n")
    assert second.endswith("the end\n")
    assert "attempt 1\n" in logs(muster, id, "--attempt", "1", "--stream", "stdout")
    assert TOKEN[:12] not in read


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.slow
def test_flood_is_bounded_in_memory_and_in_the_database(shared: Installation) -> None:
    muster = shared
    gate = muster.directory / "flooded"
    here = muster.worker("w1").id
    id = muster.submit("scenario.flood", {"gate": str(gate)}, worker_id=here)
    service = muster.service("w1")
    wait_for_output(muster, id, "xxx")
    before = psutil.Process(service.pid).memory_info().rss
    began = time.monotonic()
    sizes = []
    while time.monotonic() - began < 5:
        sizes.append(len(logs(muster, id)))
    grown = psutil.Process(service.pid).memory_info().rss - before
    gate.touch()
    row = muster.wait_for_end(id)
    assert row.status == "completed"
    assert max(sizes) <= 200_000
    assert grown < 50_000_000
    parts = [json.loads(line) for line in logs(muster, id, "--json").splitlines()]
    assert sum(part["dropped_bytes"] for part in parts) > 10_000_000
