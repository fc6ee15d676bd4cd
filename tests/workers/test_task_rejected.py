"""Actions that say "not now", in each runtime and in each kind of process."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core import packs
from tests.workers.helpers import call, sh
from workers import runtimes
from workers.runtimes import protocol
from workers.runtimes.http import retry_after

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers need Linux")

CODE = """
import os
from muster_client import TaskRejected, action

@action
def press(*, after_seconds: float | None = None):
    try:
        raise ConnectionError("no line to the press")
    except ConnectionError as error:
        raise TaskRejected("the press is cold", after_seconds=after_seconds) from error
"""

KINDS: dict[str, dict[str, Any]] = {
    "warm": {},
    "own process": {"options": {"process": True}},
    "trusted": {"isolation": "trusted"},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("asked", [30.0, None])
def test_exception_defers_with_its_own_words(
    tmp_path: Path, kind: dict[str, Any], asked: float | None
) -> None:
    # a name of its own: a trusted function's module stays in this process
    package = tmp_path / f"deferring_{tmp_path.name}"
    package.mkdir()
    (package / "work.py").write_text(CODE)
    outcome = runtimes.run(
        call(
            "python",
            f"{package.name}.work:press",
            pack_path=str(package),
            parameters={"after_seconds": asked},
            **kind,
        )
    )
    assert (outcome.event, outcome.reason) == ("fail", "task_rejected")
    assert outcome.result["message"] == "the press is cold"
    assert outcome.result.get("retry_after_seconds") == asked
    assert "traceback" not in outcome.result


@pytest.mark.parametrize(("asked", "kept"), [(-5, 0), (1e12, 7 * 86_400), ("soon", None)])
def test_delay_stays_within_reason(asked: Any, kept: float | None) -> None:
    answer = {"message": "later", "exception": "E", "traceback": ""}
    outcome = protocol.raised({**answer, "task_rejected": {"after_seconds": asked}})
    assert (outcome.reason, outcome.result.get("retry_after_seconds")) == ("task_rejected", kept)


# --- commands ------------------------------------------------------------------------------------


def test_exit_status_75_defers_where_it_may() -> None:
    asked = sh("echo later >&2; exit 75", defers_on_75=True)
    outcome = runtimes.run(asked)
    assert (outcome.event, outcome.reason) == ("fail", "task_rejected")
    assert (outcome.result["exit_code"], outcome.result["stderr"]) == (os.EX_TEMPFAIL, "later\n")

    outcome = runtimes.run(replace(asked, defers_on_75=False))
    assert (outcome.event, outcome.reason) == ("fail", "action_failed")


def test_other_exit_statuses_fail() -> None:
    assert runtimes.run(sh("exit 74", defers_on_75=True)).reason == "action_failed"


@pytest.mark.parametrize(
    ("runtime", "options", "idempotent", "defers"),
    [
        ("shell", {}, True, True),
        ("shell", {}, False, False),
        ("shell", {"exit_75": "defer"}, False, True),
        ("shell", {"exit_75": "fail"}, True, False),
        ("node", {}, True, True),
        ("container", {"exit_75": "defer"}, False, True),
        ("python", {"process": True}, True, False),
        ("http", {}, True, False),
        ("of an entry point", {}, True, False),
    ],
)
def test_exit_status_75_means_it_by_itself_only_for_idempotent_commands(
    runtime: str, options: dict[str, Any], idempotent: bool, defers: bool
) -> None:
    assert packs.defers_on_75(runtime, options, idempotent=idempotent) is defers


# --- HTTP ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("9" * 400, 1e20),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("\u0661\u0662", None),
        ("Sun, 99 Mar 2026 11:00:00 GMT", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    at_noon = 1_772_366_400.0
    assert retry_after(header, now=at_noon) == seconds
