"""An action that asks for another attempt, in each kind of process that runs Python."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers.helpers import call
from workers import runtimes
from workers.runtimes import protocol

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers need Linux")

CODE = """
import os
from datetime import date
from muster_client import TryAgain, action

@action
def later(*, day: date, after_seconds: float | None = None):
    try:
        raise ConnectionError(f"{day:%A}, retry {os.environ['MSTR_RETRIES']}")
    except ConnectionError as error:
        raise TryAgain(str(error), after_seconds=after_seconds) from error
"""

KINDS: dict[str, dict[str, Any]] = {
    "warm": {},
    "own process": {"options": {"process": True}},
    "trusted": {"isolation": "trusted"},
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    return KINDS[request.param]


@pytest.fixture
def asking(tmp_path: Path, kind: dict[str, Any]) -> Any:
    """Run the action with these parameters."""
    # a name of its own: a trusted function's module stays in this process
    package = tmp_path / f"asking_{tmp_path.name}"
    package.mkdir()
    (package / "work.py").write_text(CODE)

    def run(**parameters: Any) -> runtimes.Outcome:
        entry_point = f"{package.name}.work:later"
        values = {"pack_path": str(package), "parameters": {"day": "2026-01-02", **parameters}}
        return runtimes.run(call("python", entry_point, retries=2, **values, **kind))

    return run


def test_wish_is_the_reason_and_its_cause_is_what_is_described(asking):
    outcome = asking(after_seconds=30)
    assert (outcome.event, outcome.reason) == ("fail", "try_again")
    assert outcome.result["retry_after_seconds"] == 30
    assert outcome.result["message"].endswith("Friday, retry 2")
    assert outcome.result["exception"] == "ConnectionError"
    assert "muster_client" not in outcome.result["traceback"]


@pytest.mark.parametrize(("asked", "kept"), [(-5, 0), (1e12, 7 * 86_400)])
def test_delay_stays_within_reason(asking, asked, kept):
    assert asking(after_seconds=asked).result["retry_after_seconds"] == kept


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(10**400, 7 * 86_400), (-(10**400), 0), (math.inf, 7 * 86_400), (math.nan, None)],
)
def test_foreign_number_makes_no_foreign_delay(asked: float, kept: float | None) -> None:
    answer = {"message": "later", "exception": "E", "traceback": ""}
    outcome = protocol.raised({**answer, "try_again": {"after_seconds": asked}})
    assert (outcome.reason, outcome.result.get("retry_after_seconds")) == ("try_again", kept)


def test_without_a_delay_that_of_the_policy_counts(asking):
    outcome = asking()
    assert outcome.reason == "try_again"
    assert "retry_after_seconds" not in outcome.result


TASKS = """
from celery import shared_task

@shared_task(bind=True)
def later(self):
    if self.request.retries < 3:
        raise self.retry(countdown=5)
    return self.request.id
"""


def test_first_task_of_a_process_is_known_as_one_before_celery_is_loaded(
    tmp_path: Path, kind: dict[str, Any]
) -> None:
    package = tmp_path / f"tasks_{tmp_path.name}"
    package.mkdir()
    (package / "work.py").write_text(TASKS)
    asked = call("python", f"{package.name}.work:later", pack_path=str(package), **kind)

    outcome = runtimes.run(asked)
    assert (outcome.reason, outcome.result.get("retry_after_seconds")) == ("try_again", 5)

    ended = runtimes.run(replace(asked, retries=3))
    assert asked.execution_id in str(ended.result)
    assert ended.event == "complete"
