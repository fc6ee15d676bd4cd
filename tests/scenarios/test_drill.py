"""`manage.py drill` on an installation that has work of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import SOON_LOST, Installation


def drilled(muster: Installation, *arguments: str, exit_status: int = 0) -> str:
    """Run a drill beside a worker of the installation's own; what it printed."""
    muster.start_executor()
    muster.start_worker("mine", concurrency=1)
    muster.ready()
    drill = muster.start("drill", "manage.py", "drill", *arguments, "--run-seconds", "3")
    mine = [muster.submit_note(f"mine {number}", seconds=0.5) for number in range(4)]
    status = drill.exit_status(within_seconds=300)
    assert status == exit_status, drill.log()
    rows = muster.wait_for_ends(mine)
    assert {(row.status, row.worker_id) for row in rows} == {
        ("completed", muster.worker("mine").id)
    }
    muster.check_accounts()
    return drill.log()


def document(told: str) -> Any:
    """The JSON document among what else a process writes to its log."""
    return json.loads(told[told.index("{\n") : told.rindex("}") + 1])


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.slow
def test_worker_loss(install: Callable[..., Any], measured: Callable[[str, float], None]) -> None:
    muster: Installation = install(**SOON_LOST)

    told = document(drilled(muster, "worker-loss", "--json"))

    figures = told["figures"]
    measured("drill: kill -9 to second attempt", figures["second_attempt_started_seconds"])
    measured("drill: kill -9 to abandoned", figures["abandoned_seconds"])
    assert told["holds"], told
    assert figures["overlap_seconds"] == 0
    whats = [moment["what"] for moment in told["timeline"]]
    assert [what for what in whats if what in ("ready", "fault", "noticed")] == [
        "ready",
        "fault",
        "noticed",
    ]
    assert {"rescheduled", "started", "finished"} <= set(whats)
    for name in ("drill-a", "drill-b"):
        assert muster.worker(name).retired_at is not None


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
@pytest.mark.slow
def test_drain(install: Callable[..., Any], measured: Callable[[str, float], None]) -> None:
    muster: Installation = install()

    told = drilled(muster, "drain")

    assert "fault" in told
    assert "is draining: no more work for it" in told
    assert "give_back" in told
    assert "exited with 0" in told


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.slow
def test_broker_loss(install: Callable[..., Any], measured: Callable[[str, float], None]) -> None:
    muster: Installation = install()

    told = document(drilled(muster, "broker-loss", "--seconds", "6", "--json"))

    assert told["holds"], told
    assert told["figures"]["incarnations"] == 1
    measured("drill: broker back to the next claim", told["figures"]["recovery_seconds"])


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
def test_broker_that_is_a_file_cannot_be_cut_off(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    drill = muster.start("drill", "manage.py", "drill", "broker-loss")
    assert drill.exit_status() == 1
    assert "no connection to cut" in drill.log()
