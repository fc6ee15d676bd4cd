"""The core pack's actions, as a worker runs them: by their entry points."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from orchestrator.core import packs
from tests.workers.helpers import call
from workers import runtimes
from workers.runtimes import Outcome

CORE = Path(settings.BASE_DIR) / "packs" / "core"


def run(ref: str, **parameters: Any) -> Outcome:
    action = next(action for action in packs.load(CORE).actions if action.ref == ref)
    return runtimes.run(
        call(
            action.runtime,
            action.entry_point,
            parameters=parameters,
            pack_path=str(CORE),
            options=action.runtime_options,
        )
    )


def test_echo_returns_its_parameters():
    assert run("core.echo", a=1, b=[None]).result == {"a": 1, "b": [None]}


def test_noop_returns_nothing():
    assert run("core.noop").result == {}


def test_sleep_sleeps():
    assert run("core.sleep", seconds=0.01).result == {"seconds": 0.01}


def test_sha256_gives_digest_and_size(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert run("core.sha256", path=str(tmp_path / "file")).result == {
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "bytes": 3,
    }


def test_shell_runs_the_command_given():
    assert run("core.shell", argv=["echo", "a  b"]).result["stdout"] == "a  b\n"


def test_fail_fails_with_its_message():
    outcome = run("core.fail", message="as asked")
    assert outcome.event == "fail"
    assert outcome.result["message"].endswith("Failed: as asked")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_echo_returns_its_parameters_and_which_node_it_is():
    result = run("core.node_echo", a=[1]).result["result"]
    assert result["parameters"] == {"a": [1]}
    assert result["node"].startswith("v")


def test_http_get_reaches_public_addresses_only():
    outcome = run("core.http_get", url="http://169.254.169.254/", query="x")
    assert outcome.reason == "address_refused"
