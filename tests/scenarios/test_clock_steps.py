"""The database's clock is set while everything runs: ten minutes forward, and ten minutes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests import servers
from tests.relays import Wire
from tests.scenarios.conftest import MEASURED
from tests.scenarios.installation import QUICK, SOON_LOST, Backend, Installation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("step", [600, -600], ids=["forward", "back"]),
]

WINDOW_SECONDS = QUICK["heartbeat_interval_seconds"] * SOON_LOST["staleness_multiplier"]
STORY = ("schedule", "claim", "complete")


@pytest.fixture(scope="module")
def settable(
    start_shared_server: Callable[..., Any], servers_backend: Backend
) -> Iterator[Backend]:
    postgres = start_shared_server(servers.PostgresServer, has_own_clock=True)
    backend = Backend(postgres, servers_backend.rabbit)
    yield backend
    backend.close()


@pytest.fixture
def muster(settable: Backend) -> Iterator[Installation]:
    # none of the times in the database is to be passed by a step of ten minutes
    made = Installation(
        settable,
        **SOON_LOST,
        deadline_seconds=3_600,
        worker_queue_ttl_ms=1_200_000,
        scheduled_timeout_seconds=1_200,
    )
    yield made
    made.close()
    database(made).step_clock(0)


def database(muster: Installation) -> servers.PostgresServer:
    assert muster.backend.postgres is not None
    return muster.backend.postgres


def time_of(server: servers.PostgresServer) -> datetime:
    with psycopg.connect(server.url) as connection:
        (at,) = connection.execute("SELECT clock_timestamp()").fetchall()[0]
    assert isinstance(at, datetime)
    return at


def set_clock(muster: Installation, seconds: int) -> None:
    server = database(muster)
    before, began = time_of(server), time.monotonic()
    server.step_clock(seconds)
    passed = (time_of(server) - before).total_seconds() - (time.monotonic() - began)
    assert abs(passed - seconds) < 10, "it was not set"


def maintenance_is_current(muster: Installation) -> bool:
    """Whether all that runs every second did so lately, by the clock as it is now."""
    ticks: dict[str, datetime] = muster.client.call("ticks")
    now = time_of(database(muster))
    checks = [at for name, at in ticks.items() if "check" in name]
    return len(checks) == 2 and all(abs((now - at).total_seconds()) < 60 for at in checks)


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
    muster.wait_for_ends(at_once)
    assert {tuple(muster.story(id)) for id in at_once} == {STORY}
    muster.wait_for(lambda: maintenance_is_current(muster), "maintenance stands still")
    assert muster.wait_for_end(running).status == "completed"
    # nothing but a sweep looks after what waits for a worker that was never there
    nobody = muster.client.call("enlist", name="nobody")
    muster.client.call("declare_worker_queues", id=nobody)
    overdue = muster.submit("core.noop", worker_id=nobody, deadline_seconds=1)
    assert muster.wait_for_end(overdue).reason == "deadline_passed"
    assert w1.is_up()
    muster.wait_for(lambda: muster.worker("w1").status == "active", "it is not active")
    assert muster.worker("w1").incarnation == 1
    muster.check_accounts()


@pytest.mark.parametrize("dies", ["before", "after"])
def test_worker_that_dies_beside_a_step_is_found_lost(
    muster: Installation, step: int, dies: str, measured_here: Callable[[str, float], None]
) -> None:
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1)
    muster.ready()
    id = muster.submit_note("running", action="note_again", seconds=600, timeout_seconds=1_000)
    muster.wait_for_start("running")
    muster.start_worker("w2", concurrency=1)
    muster.ready()

    if dies == "before":
        w1.kill_tree()
        set_clock(muster, step)
    else:
        set_clock(muster, step)
        beaten_at = time_of(database(muster))
        muster.wait_for(
            lambda: abs((muster.worker("w1").heartbeat_at - beaten_at).total_seconds()) < 300,
            "it beats no more",
        )
        w1.kill_tree()
    killed_at = time.monotonic()

    muster.wait_for(
        lambda: muster.worker("w1").status_reason == "heartbeat stale", "nobody misses it"
    )
    measured_here(f"death {dies} a step of {step:+d} s to lost", time.monotonic() - killed_at)
    assert muster.worker("w2").incarnation == 1
    muster.wait_for(lambda: muster.worker("w2").status == "active", "w2 is not active")
    muster.wait_for_start("running", attempt=2)
    muster.cancel(id)
    assert muster.wait_for_end(id).status == "cancelled"
    muster.check_accounts()


def test_executor_that_vanishes_in_its_sweep_after_a_step_holds_nothing_up(
    muster: Installation, step: int, measured_here: Callable[[str, float], None]
) -> None:
    """The server ends its transaction in time, although it counts that by its clock."""
    url = muster.environment["DATABASE_URL"]
    with Wire.to(url) as wire:
        muster.start_executor("vanishes", DATABASE_URL=wire.carrying(url))
        muster.ready()
        nobody = muster.client.call("enlist", name="nobody")
        set_clock(muster, step)
        muster.wait_for(lambda: maintenance_is_current(muster), "maintenance stands still")
        overdue: list[UUID] = []

        def has_vanished() -> bool:
            overdue.append(muster.submit("core.noop", worker_id=nobody, deadline_seconds=1))
            return wire.hush_after(b"execution_timeout_monitor", within_seconds=3)

        muster.wait_for(has_vanished, "it ends nothing")
        vanished_at = time.monotonic()
        muster.start_executor("other")
        muster.wait_for_ends(overdue, within_seconds=20)
        seconds = time.monotonic() - vanished_at
        measured_here(
            f"executor vanished in a sweep after a step of {step:+d} s to the end", seconds
        )
    muster.check_accounts()


@pytest.fixture
def measured_here(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    def note(what: str, seconds: float) -> None:
        request.node.user_properties.append((MEASURED, f"{seconds:7.3f} s  {what}"))

    return note
