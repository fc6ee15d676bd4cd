"""The project of the guide "From Celery": what the guide says of retries and results is so, also
with servers. `tests/docs` runs the guide's own commands."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster_client import ExecutionDidNotComplete, Invalid, Muster
from tests.docs import pages
from tests.scenarios.installation import Backend, Installation


@pytest.fixture(scope="module")
def backend(embedded_backend: Backend) -> Backend:
    """The guide is about a first day: what it shows does not depend on the servers below."""
    return embedded_backend


@pytest.fixture(scope="module")
def installed(shared: Installation) -> None:
    """Install the project, as the guide shows it."""
    folder = shared.directory / "project" / "shop"
    folder.mkdir(parents=True)
    for block in pages.page("docs/from-celery.md").blocks:
        if block.path.startswith("shop/"):
            (folder / Path(block.path).name).write_text(block.text)
    shared.command("pack", "install", str(folder))


@pytest.fixture(scope="module")
def url(shared: Installation) -> str:
    url = shared.serve()
    shared.ready()
    return url


@pytest.fixture
def muster(
    shared: Installation, installed: None, url: str, request: pytest.FixtureRequest
) -> Iterator[Muster]:
    with Muster(url, token=shared.token(request.node.name[:60])) as muster:
        yield muster


def test_task_runs_and_its_value_is_the_result(muster: Muster, tmp_path: Path) -> None:
    parameters = {"order": "A-1", "folder": str(tmp_path)}
    assert muster.run("shop.receipt", parameters, wait_seconds=60) == {
        "value": f"{tmp_path}/A-1.txt"
    }
    assert (tmp_path / "A-1.txt").read_text() == "Receipt of A-1\n"


def test_parameters_are_checked_before_anything_runs(muster: Muster) -> None:
    with pytest.raises(Invalid) as raised:
        muster.submit("shop.charge", {"order": 1, "amount": 2.5, "provider": "x"})
    assert [error.pointer for error in raised.value.errors] == ["/parameters/order"]


def test_task_that_retries_itself_ends_when_its_provider_is_up(
    muster: Muster, tmp_path: Path
) -> None:
    provider = tmp_path / "provider"
    parameters: dict[str, Any] = {"order": "A-1", "amount": 20.0, "provider": str(provider)}
    execution = muster.submit("shop.charge", parameters, idempotency_key="A-1")

    reasons = []
    for event in muster.follow(execution.id, timeout_seconds=60):
        reasons.append(event.reason)
        if event.event == "retry":
            provider.write_text("bank")

    end = muster.get(execution.id)
    assert end.result == {"order": "A-1", "amount": 20.0, "account": "bank", "retries": 1}
    assert reasons.count("try_again") == 1
    assert muster.submit("shop.charge", parameters, idempotency_key="A-1").id == execution.id


@pytest.mark.slow
def test_retries_come_to_an_end_with_the_error_of_the_task(muster: Muster, tmp_path: Path) -> None:
    parameters = {"order": "A-2", "amount": 1, "provider": str(tmp_path / "nowhere")}
    started = time.monotonic()
    with pytest.raises(ExecutionDidNotComplete, match="No such file or directory") as raised:
        muster.run("shop.charge", parameters, wait_seconds=90)
    execution = raised.value.execution
    assert (execution.status, execution.reason) == ("failed", "try_again")
    assert execution.retry_count == 5
    assert execution.result["exception"] == "FileNotFoundError"
    assert time.monotonic() - started > 4, "each attempt waits for the countdown"


def test_autoretry_repeats_what_it_names(muster: Muster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.close()
        execution = muster.submit("shop.notify", {"port": port, "text": "sold"})
        for event in muster.follow(execution.id, timeout_seconds=60):
            if event.event == "retry":
                break
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(60)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b"sold"
    assert muster.wait(execution.id, timeout_seconds=60).is_completed
