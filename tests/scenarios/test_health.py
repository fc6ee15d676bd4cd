"""A worker that is unfit for work says so, is given none, and comes back by itself."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import pytest

from tests import servers
from tests.scenarios.installation import Installation
from tests.scenarios.test_killed import pool_child_of

CHECK = "tests.scenarios.pack.fitness.is_fit"


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
def test_worker_whose_check_fails_gives_back_and_comes_back(install: Callable[..., Any]) -> None:
    muster: Installation = install(health_checks=CHECK, health_check_interval_seconds=0.5)
    unfit = muster.directory / "unfit"
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1, UNFIT_FILE=str(unfit))
    muster.ready()
    gated = {"label": "running", "is_gated": True}
    running, waiting = muster.submit_notes(gated, {"label": "waiting"})
    muster.wait_for_start("running")
    muster.wait_for_status(waiting, "scheduled")

    unfit.write_text("the licence has expired")
    muster.wait_for(lambda: muster.worker("w1").status == "inactive", "it is not inactive")
    why = "the licence has expired"
    muster.wait_for(lambda: muster.worker("w1").failed_checks.get(CHECK) == why, "it says not why")
    assert why in ping(muster, "w1", exit_status=1)
    muster.wait_for_status(waiting, "requested", "scheduling")
    muster.start_worker("w2", concurrency=1)
    muster.open_gate("running")
    rows = muster.wait_for_ends([running, waiting])

    assert [row.status for row in rows] == ["completed", "completed"]
    assert [row.worker_id for row in rows] == [muster.worker(n).id for n in ("w1", "w2")]
    assert rows[1].retry_count == 0

    unfit.unlink()
    muster.wait_for(lambda: muster.worker("w1").status == "active", "it is not active again")
    assert "w1: active" in ping(muster, "w1", exit_status=0)
    again = muster.submit_note("again", worker_id=muster.worker("w1").id)
    assert muster.wait_for_end(again).status == "completed"
    assert w1.process.poll() is None
    assert muster.worker("w1").incarnation == 1
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.slow
def test_pool_process_that_does_not_answer_is_found_and_replaced(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(health_check_interval_seconds=0.5)
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=2, pool="prefork")
    muster.ready()
    busy = muster.submit_note("busy", is_gated=True)
    busy_pid = pool_child_of(muster.wait_for_start("busy").pid, w1.pid)
    (idle,) = (one for one in pool_of(w1.pid) if one.pid != busy_pid)

    idle.suspend()
    muster.wait_for(lambda: unhealthy_events(muster, "w1"), "nobody noticed")
    assert all(event.reason.startswith("pool") for event in unhealthy_events(muster, "w1"))
    muster.wait_for(lambda: muster.worker("w1").status == "active", "it is not fit again")

    muster.wait_for(lambda: not servers.is_alive(idle), "it is not replaced")
    muster.open_gate("busy")
    assert muster.wait_for_end(busy).status == "completed"
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
def test_worker_shows_that_it_lives_until_it_has_left(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    w1 = muster.start_worker("w 1")
    muster.ready()
    sign = muster.directory / "alive" / "w%201"
    muster.wait_for(sign.exists, "no liveness file")
    assert json.loads(sign.read_text())["pid"] == w1.pid
    first = sign.stat().st_mtime_ns
    muster.wait_for(lambda: sign.stat().st_mtime_ns > first, "it is not renewed")

    w1.signal(signal.SIGTERM)
    assert w1.exit_status() == 0
    assert not sign.exists()
    assert "gone (stopped)" in ping(muster, "w 1", exit_status=1)


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.slow
def test_services_are_asked_after_with_their_own_commands_and_logins(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    logins = {"executor": "executor", "gate": "executor", "sensor": "executor", "beat": "beat"}
    services = {
        name: muster.start(name, "manage.py", name, **muster.login(login))
        for name, login in logins.items()
    }
    muster.ready()

    def asked(name: str) -> tuple[int, str]:
        done = muster.start("ping", "manage.py", name, "--ping", **muster.login(logins[name]))
        return done.exit_status(), done.log()

    def is_alive(name: str) -> bool:
        return asked(name)[0] == 0

    for name in services:
        muster.wait_for(partial(is_alive, name), f"{name} is not heard of")
        services[name].signal(signal.SIGTERM)
    for name, service in services.items():
        assert service.exit_status() == 0
        status, line = asked(name)
        assert status == 1
        assert f"{name} {name}: ended by itself" in line


def unhealthy_events(muster: Installation, name: str) -> list[Any]:
    events = muster.client.call("worker_events", worker=name)
    return [event for event in events if event.kind == "unhealthy"]


def pool_of(pid: int) -> list[psutil.Process]:
    """The pool processes of a worker, without its sentinel."""
    children = psutil.Process(pid).children()
    return [child for child in children if "workers.sentinel" not in child.cmdline()]


def ping(muster: Installation, name: str, *, exit_status: int) -> str:
    service = muster.start("ping", "manage.py", "worker", "--ping", name)
    assert service.exit_status() == exit_status
    return service.log()
