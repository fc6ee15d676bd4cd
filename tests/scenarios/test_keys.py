"""A key is opened at the claim, as it is then; what cannot be opened does not begin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from tests.scenarios.installation import Backend, Installation

EMBEDDED = pytest.mark.parametrize("backend", ["embedded"], indirect=True)

TOKEN = {"token": {"$key": "scenario/token"}}


def with_key(install: Callable[..., Installation], backend: Backend, value: str) -> Installation:
    muster = install()
    if backend.name == "servers":  # embedded, it makes its own
        muster.environment["MUSTER_KEYRING"] = str(muster.directory / "keyring")
        muster.command("keys", "ring", "--add")
    key(muster, "create", value)
    muster.start_executor()
    return muster


def key(muster: Installation, verb: str, value: str) -> None:
    file = muster.directory / "value"
    file.write_text(value)
    muster.command("keys", verb, "scenario/token", "--from-file", str(file))
    file.unlink()


def digest(value: str) -> dict[str, str]:
    return {"sha256": hashlib.sha256(value.encode()).hexdigest()}


@pytest.mark.slow
def test_action_gets_the_value_as_it_is_at_the_claim(
    install: Callable[..., Installation], backend: Backend
) -> None:
    muster = with_key(install, backend, "the first value")
    before = muster.submit("scenario.digest", TOKEN, deadline_seconds=100)
    key(muster, "rotate", "the second value")
    muster.start_worker("w1")
    muster.ready()
    assert muster.wait_for_end(before).result == digest("the second value")
    muster.command("keys", "ring", "--add")
    muster.command("keys", "reseal")
    after = muster.submit("scenario.digest", TOKEN)
    assert muster.wait_for_end(after).result == digest("the second value")
    assert muster.execution(after).parameters == TOKEN
    muster.check_accounts()


@EMBEDDED
def test_key_that_was_revoked_meanwhile_ends_its_execution_before_it_begins(
    install: Callable[..., Installation], backend: Backend
) -> None:
    muster = with_key(install, backend, "a value of a key")
    id = muster.submit("scenario.digest", TOKEN, deadline_seconds=100)
    muster.command("keys", "revoke", "scenario/token")
    muster.start_worker("w1", concurrency=1)
    muster.ready()
    row = muster.wait_for_end(id)
    assert (row.status, row.reason) == ("failed", "key_refused")
    assert row.result["message"] == "The key scenario/token was revoked."
    # the slot is free for what comes next
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    muster.check_accounts()


@EMBEDDED
def test_worker_without_the_ring_says_so_and_goes_on(
    install: Callable[..., Installation], backend: Backend
) -> None:
    muster = with_key(install, backend, "a value of a key")
    nowhere = str(muster.directory / "nowhere")
    muster.start_worker("w1", MUSTER_KEYRING=nowhere)
    muster.ready()
    row = muster.wait_for_end(muster.submit("scenario.digest", TOKEN))
    assert (row.status, row.reason) == ("failed", "key_refused")
    assert row.result["message"] == f"MUSTER_KEYRING={nowhere}: there is no such file."
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
