"""What is taken away is gone at once, in an API process that has seen the token before."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.scenarios.installation import Backend, Installation

GONE_WITHIN_SECONDS = 1.0

ONE_BACKEND = pytest.mark.parametrize("backend", ["embedded"], indirect=True)
"""For what is not about what a process remembers of tokens: with servers that is in a cache."""


@pytest.fixture(scope="module")
def muster(backend: Backend) -> Iterator[Installation]:
    with contextlib.closing(Installation(backend)) as installation:
        yield installation


@pytest.fixture(scope="module")
def url(muster: Installation) -> str:
    url = muster.serve()
    muster.ready()
    return f"{url}/api/v1"


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60) as client:
        yield client


def test_what_is_taken_away_is_gone_within_a_second(
    muster: Installation, url: str, client: httpx.Client
) -> None:
    token = muster.token("ci", "operator")

    def status() -> int:
        headers = {"authorization": f"Bearer {token}"}
        return client.get(f"{url}/executions", headers=headers).status_code

    def becomes(expected: int, *command: str) -> None:
        for _ in range(5):  # whatever might be remembered is
            status()
        muster.command(*command)
        until = time.monotonic() + GONE_WITHIN_SECONDS
        while (found := status()) != expected and time.monotonic() < until:
            pass
        assert found == expected, command

    assert status() == 200
    becomes(403, "access", "revoke", "ci", "operator")
    becomes(200, "access", "grant", "ci", "viewer")
    becomes(401, "access", "disable", "ci")
    becomes(200, "access", "enable", "ci")
    becomes(401, "token", "revoke", "ci")


@ONE_BACKEND
def test_both_texts_pass_for_the_overlap_and_then_one(
    muster: Installation, url: str, client: httpx.Client
) -> None:
    old = muster.token("old", "viewer")

    def status(token: str) -> int:
        headers = {"authorization": f"Bearer {token}"}
        return client.get(f"{url}/executions", headers=headers).status_code

    new = muster.command("token", "rotate", "old", "--overlap", "5s").strip()
    assert (status(old), status(new)) == (200, 200)
    muster.wait_for(lambda: status(old) == 401, "the old text is still accepted")
    assert status(new) == 200


@ONE_BACKEND
def test_new_token_runs_nothing_and_dangerous_actions_need_their_own_grant(
    muster: Installation, url: str, client: httpx.Client, tmp_path: Path
) -> None:
    """The shell that any token was reads the worker's files once somebody has granted just that."""
    muster.start_executor()
    muster.start_worker()
    muster.ready()
    token = muster.command("token", "create", "new").strip()
    secret = tmp_path / "secret"
    secret.write_text("kept from strangers")

    def ask(ref: str, **parameters: Any) -> httpx.Response:
        body = {"action_ref": ref, "parameters": parameters}
        headers = {"authorization": f"Bearer {token}"}
        return client.post(f"{url}/executions", json=body, headers=headers)

    argv = ["cat", str(secret)]
    assert ask("core.shell", argv=argv).status_code == 403
    muster.command("access", "grant", "new", "operator")
    assert ask("core.echo", text="hello").status_code == 201
    for answer in (ask("core.shell", argv=argv), ask("core.sha256", path=str(secret))):
        assert answer.status_code == 403
        assert "actions.run_any_command" in answer.json()["detail"]
    assert [row.action_ref for row in muster.executions().values()] == ["core.echo"]
    muster.command("access", "grant", "new", "actions.run_any_command", "--pack", "core")
    answer = ask("core.shell", argv=argv)
    assert answer.status_code == 201
    row = muster.wait_for_end(UUID(answer.json()["id"]))
    assert row.result["stdout"] == "kept from strangers"
    headers = {"authorization": f"Bearer {token}"}
    shown = client.get(f"{url}/executions/{row.id}", headers=headers).json()
    assert (shown["parameters"], shown["result"]) == ("***", "***")
