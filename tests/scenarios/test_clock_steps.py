"""The database's clock is set while everything runs: ten minutes forward, and ten minutes back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import servers
from tests.scenarios.conftest import MADE, MEASURED
from tests.scenarios.installation import QUICK, Backend, Installation
from tests.scenarios.test_clock_skew import _faketime

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("step", [600, -600], ids=["forward", "back"]),
]

WINDOW_SECONDS = QUICK["heartbeat_interval_seconds"] * QUICK["staleness_multiplier"]
LOST_WITHIN_SECONDS = WINDOW_SECONDS + 20


class SettableServer(servers.PostgresServer):
    """A PostgreSQL whose clock can be set while it runs. What counts seconds goes on as it did."""

    def set_clock(self, seconds: int) -> None:
        """Be so far ahead of this machine's clock, or behind it."""
        written = self._offset.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        written.chmod(0o644)
        os.replace(written, self._offset)

    def time(self) -> datetime:
        with psycopg.connect(self.url) as connection:
            (at,) = connection.execute("SELECT clock_timestamp()").fetchall()[0]
        assert isinstance(at, datetime)
        return at

    def _prepare(self) -> None:
        self.set_clock(0)
        super()._prepare()

    @property
    def _offset(self) -> Path:
        return self.directory / "clock"

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {
            "LD_PRELOAD": str(_faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


@pytest.fixture(scope="module")
def settable(start_shared_server: Callable[..., Any]) -> Iterator[Backend]:
    backend = Backend(
        start_shared_server(SettableServer), start_shared_server(servers.RabbitServer)
    )
    yield backend
    backend.close()


@pytest.fixture
def muster(settable: Backend, request: pytest.FixtureRequest) -> Iterator[Installation]:
    # none of the times in the database is to be passed by a step of ten minutes
    made = Installation(
        settable,
        deadline_seconds=3_600,
        worker_queue_ttl_ms=1_200_000,
        scheduled_timeout_seconds=1_200,
    )
    request.node.stash[MADE] = [made]  # to be reported, should the test fail
    yield made
    made.close()
    server_of(made).set_clock(0)


def server_of(muster: Installation) -> SettableServer:
    server = muster.backend.postgres
    assert isinstance(server, SettableServer)
    return server


def set_clock(muster: Installation, seconds: int) -> None:
    server = server_of(muster)
    before = server.time()
    server.set_clock(seconds)
    assert abs((server.time() - before).total_seconds() - seconds) < 10, "it was not set"


def maintenance_is_current(muster: Installation) -> bool:
    """Whether all that runs every second did so lately, by the clock as it is now."""
    ticks: dict[str, datetime] = muster.client.call("ticks")
    now = server_of(muster).time()
    checks = [at for name, at in ticks.items() if "check" in name]
    return len(checks) == 2 and all(abs((now - at).total_seconds()) < 10 for at in checks)


def test_step_loses_no_worker_stops_no_maintenance_and_ends_nothing_wrongly(
    muster: Installation, step: int
) -> None:
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=2)
    muster.ready()
    running = muster.submit_note("running", seconds=WINDOW_SECONDS + 4, timeout_seconds=1_000)
    muster.wait_for_start("running")

    set_clock(muster, step)

    # it is given work, and works, while nobody can know yet how long it will be silent
    at_once = [muster.submit_note(f"at once {n}", timeout_seconds=1_000) for n in range(5)]
    rows = muster.wait_for_ends(at_once, within_seconds=WINDOW_SECONDS)
    assert {row.status for row in rows} == {"completed"}
    muster.wait_for(lambda: maintenance_is_current(muster), "maintenance stands still")
    assert muster.wait_for_end(running).status == "completed"
    # nothing but a sweep looks after what waits for a worker that was never there
    nobody = muster.client.call("enlist", name="nobody")
    muster.client.call("declare_worker_queues", id=nobody)
    overdue = muster.submit("core.noop", worker_id=nobody, deadline_seconds=1)
    assert muster.wait_for_end(overdue).reason == "deadline_passed"
    assert w1.is_up()
    assert (muster.worker("w1").incarnation, muster.worker("w1").status) == (1, "active")
    muster.check_accounts()


@pytest.mark.parametrize("dies", ["before", "after"])
def test_worker_that_dies_beside_a_step_is_found_lost(
    muster: Installation, step: int, dies: str, measured_lost: Callable[[str, float], None]
) -> None:
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1)
    muster.ready()
    id = muster.submit_note("running", action="note_again", seconds=60, timeout_seconds=1_000)
    muster.wait_for_start("running")
    muster.start_worker("w2", concurrency=1)
    muster.ready()

    if dies == "before":
        w1.kill_tree()
        set_clock(muster, step)
    else:
        set_clock(muster, step)
        beaten_at = server_of(muster).time()
        muster.wait_for(
            lambda: abs((muster.worker("w1").heartbeat_at - beaten_at).total_seconds()) < 60,
            "it beats no more",
        )
        w1.kill_tree()
    killed_at = time.monotonic()

    muster.wait_for(
        lambda: muster.worker("w1").status_reason == "heartbeat stale",
        "nobody misses it",
        within_seconds=LOST_WITHIN_SECONDS,
    )
    measured_lost(f"death {dies} a step of {step:+d} s to lost", time.monotonic() - killed_at)
    assert muster.worker("w2").status == "active"
    muster.wait_for_start("running", attempt=2)
    muster.cancel(id)
    assert muster.wait_for_end(id).status == "cancelled"
    muster.check_accounts()


@pytest.fixture
def measured_lost(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    def note(what: str, seconds: float) -> None:
        request.node.user_properties.append((MEASURED, f"{seconds:7.3f} s  {what}"))

    return note
