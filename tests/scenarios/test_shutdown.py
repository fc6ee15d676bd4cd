"""SIGTERM: a worker takes no more, finishes what runs, and says goodbye."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import servers
from tests.scenarios.installation import START_SECONDS, Backend, Installation

STOPPED = "The worker was stopped, and killed what still ran when its time to stop was up."


def test_worker_told_to_stop_finishes_what_runs_and_gives_back_the_rest(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(shutdown_timeout_seconds=60)
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1)
    muster.ready()
    gated = {"label": "running", "is_gated": True}
    running, waiting = muster.submit_notes(gated, {"label": "waiting"})
    muster.wait_for_start("running")
    muster.wait_for_status(waiting, "scheduled")
    muster.start_worker("w2", concurrency=1)

    began = time.monotonic()
    w1.signal(signal.SIGTERM)
    muster.wait_for(lambda: muster.worker("w1").status == "draining", "w1 does not drain")
    measured("SIGTERM of a worker to draining", time.monotonic() - began)
    assert muster.execution(running).status == "running"
    muster.open_gate("running")
    assert w1.exit_status() == 0

    rows = muster.wait_for_ends([running, waiting])
    assert [row.status for row in rows] == ["completed", "completed"]
    assert (rows[0].worker_id, rows[0].attempt) == (muster.worker("w1").id, 1)
    assert rows[1].worker_id == muster.worker("w2").id
    stopped = muster.worker("w1")
    assert (stopped.status, stopped.status_reason) == ("inactive", "stopped")
    assert [note.label for note in muster.journal.starts()] == ["running", "waiting"]
    assert muster.story(running) == ["schedule", "claim", "complete"]
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_action_handed_to_a_process_just_before_the_worker_stops_runs_to_its_end(
    install: Callable[..., Any],
) -> None:
    """The process has not accepted it when the consumer closes: it may have begun, nobody knows."""
    muster: Installation = install(shutdown_timeout_seconds=60)
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1, pool="prefork")
    muster.ready()

    with w1.pool_processes_stopped():
        id = muster.submit_note("handed over")
        muster.wait_for_status(id, "running")
        time.sleep(1)  # for its job to be sent
        w1.signal(signal.SIGTERM)
        muster.wait_for(lambda: muster.worker("w1").status == "draining", "w1 does not drain")
        time.sleep(1)  # for its consumer to close
    assert w1.exit_status() == 0

    assert muster.wait_for_end(id).status == "completed"
    assert muster.story(id) == ["schedule", "claim", "complete"]
    muster.check_each_started_once([id])


@pytest.mark.parametrize(
    ("backend", "pool", "number", "action"),
    [
        ("servers", "prefork", signal.SIGTERM, "note"),
        ("servers", "prefork", signal.SIGQUIT, "note"),
        ("servers", "prefork", signal.SIGTERM, "note_trusted"),
        ("embedded", "threads", signal.SIGTERM, "note"),
        ("embedded", "threads", signal.SIGTERM, "note_trusted"),
    ],
    indirect=["backend"],
)
def test_worker_that_does_not_finish_in_time_kills_what_runs_and_says_that_it_had_to_stop(
    install: Callable[..., Any], pool: str, number: signal.Signals, action: str
) -> None:
    """A thread that sleeps in the worker's own process cannot be stopped: it ends with that."""
    muster: Installation = install(shutdown_timeout_seconds=1, least_isolation="trusted")
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=4, pool=pool)
    muster.ready()
    python = muster.submit_note("python", action=action, seconds=300)
    shell = muster.submit_note("shell", action="note_shell", seconds=300, children=1)
    busy = muster.submit_note("busy", action=action, seconds=300, busy=True)
    again = muster.submit_note("again", action="note_again_once", seconds=300)
    for label in ("python", "shell", "busy", "again"):
        muster.wait_for_start(label)
    muster.start_worker("w2", concurrency=1)
    muster.ready()

    w1.signal(number)
    assert w1.exit_status() == 0

    rows = muster.wait_for_ends([python, shell, busy])
    for row in rows:
        assert (row.status, row.reason) == ("abandoned", "worker_stopped")
        assert row.result["error"] == "The worker had to stop before the action ended"
        assert row.result["message"] == STOPPED
    muster.wait_for(lambda: not muster.processes_of(shell), "its children live on")
    assert muster.worker("w1").status_reason == "stopped"
    muster.wait_for(lambda: len(muster.journal.starts("again")) == 2, "it did not start again")
    row = muster.wait_for_status(again, "running")
    assert (row.worker_id, row.retry_count) == (muster.worker("w2").id, 0)
    # an executor that does not know yet that w1 leaves may send it there once more, unclaimed
    of_claims = [
        e for e in muster.events(again) if e.event == "claim" or e.from_status == "running"
    ]
    assert [(event.event, event.reason) for event in of_claims] == [
        ("claim", ""), ("give_back", "worker_stopped"), ("claim", ""),
    ]  # fmt: skip
    assert muster.journal.ends() == []
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_worker_told_to_stop_as_soon_as_it_has_registered_leaves_in_good_order(
    install: Callable[..., Any], number: signal.Signals
) -> None:
    """Celery makes its signal handlers later."""
    muster: Installation = install(logins=False)
    muster.client.call("ping")  # who looks on is up before the worker registers
    worker = muster.start_worker("w1")

    def registered() -> Any:
        row = muster.worker("w1")
        return row if row.incarnation == 1 else None

    row = muster.wait_for(registered, "it does not register", within_seconds=START_SECONDS)
    worker.signal(number)

    assert row.status == "inactive", "it is not given work yet"
    assert worker.exit_status() == 0
    row = muster.worker("w1")
    assert (row.status, row.status_reason) == ("inactive", "stopped")
    assert row.gone_at is not None


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_plain_celery_worker_is_given_work_and_leaves_in_good_order(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    muster.start_executor()
    worker_id = muster.client.call("enlist", name="w1")
    queue = f"scenario.worker.{worker_id}.executions"
    celery = ("-m", "celery", "-A", "settings", "worker", "-Q", queue, "-c", "1", "-l", "INFO")
    worker = muster.start("w1", *celery)
    muster.ready()
    assert muster.worker("w1").status == "active"
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"

    worker.signal(signal.SIGTERM)

    assert worker.exit_status() == 0
    assert muster.worker("w1").status_reason == "stopped"


def test_executor_told_to_stop_exits_and_another_goes_on(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    first = muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"

    first.signal(signal.SIGTERM)
    assert first.exit_status() == 0
    # in bulk: a single one would be placed by who accepts it
    ids = muster.submit_many([{}, {}], "core.noop")
    assert [muster.execution(id).status for id in ids] == ["requested"] * 2
    muster.start_executor("executor2")

    for id in ids:
        assert muster.wait_for_end(id).status == "completed"
        assert muster.story(id) == ["schedule", "claim", "complete"]


def test_what_an_idle_installation_accepts_runs_without_an_executor(
    install: Callable[..., Any],
) -> None:
    """Where the database is PostgreSQL; embedded it waits for one."""
    muster: Installation = install()
    executor = muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    executor.signal(signal.SIGTERM)
    assert executor.exit_status() == 0

    id = muster.submit("core.noop")
    if muster.backend.name == "servers":
        assert muster.wait_for_end(id).status == "completed"
        assert [event.actor for event in muster.events(id)] == ["acceptance", "w1", "w1"]
    else:
        assert muster.execution(id).status == "requested"


STARTED = "Application startup complete"


@pytest.fixture(scope="module")
def serving(embedded_backend: Backend) -> Iterator[Installation]:
    # several processes of one service start Python by themselves
    muster = Installation(embedded_backend, is_forked=False)
    yield muster
    muster.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["api", "api --processes 2", "notifier"])
def test_what_serves_clients_exits_with_0_when_told_to_stop(
    serving: Installation, command: str, number: signal.Signals
) -> None:
    arguments = [*command.split(), "--port", str(servers.free_port())]
    service = serving.start(command, "manage.py", *arguments)
    serving.wait_for(lambda: STARTED in service.log(), "it is not up")
    service.signal(number)
    assert service.exit_status() == 0
    assert "Traceback" not in service.log()
