"""What an action, or somebody who reaches the broker, must not be able to do."""

from __future__ import annotations

import getpass
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import servers, users
from tests.scenarios.installation import Backend, Installation, Service
from tests.scenarios.test_hostile import silent_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux")

ONE_BACKEND = pytest.mark.parametrize("backend", ["embedded"], indirect=True)
"""For what is between a worker and its actions."""
SERVERS = pytest.mark.parametrize("backend", ["servers"], indirect=True)

CREDENTIALS = {"DATABASE_URL", "BROKER_URL", "REDIS_URL", "SECRET_KEY"}


@pytest.fixture
def canary() -> str:
    return f"canary-{secrets.token_hex(12)}"


@pytest.fixture
def with_canary(install: Callable[..., Any], canary: str) -> Callable[..., Installation]:
    """Make an installation that has this secret in its environment."""

    def make(**settings: Any) -> Installation:
        # whose environment is what the kernel tells
        muster: Installation = install(is_forked=False, **settings)
        muster.environment["SECRET_KEY"] = canary
        muster.environment.setdefault("REDIS_URL", f"redis://:{canary}@127.0.0.1:1/0")
        return muster

    return make


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="muster-place-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def own_children(worker: Service) -> list[psutil.Process]:
    """The processes of a worker that are Muster's own: it, its pool, sentinel and keepers."""
    tree = worker.tree()
    return [
        process
        for process in tree
        if process.pid == worker.pid
        or "manage.py" in process.cmdline()
        or "workers.sentinel" in process.cmdline()
        or any(part.endswith("keeper.py") for part in process.cmdline())
    ]


# --- what code of a pack can reach ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "pool"),
    [("servers", "prefork"), ("embedded", "prefork"), ("embedded", "threads")],
    indirect=["backend"],
)
def test_action_finds_no_credential_in_any_process(
    with_canary: Callable[..., Installation], canary: str, pool: str
) -> None:
    muster = with_canary()
    muster.start_executor()
    muster.start_worker(pool=pool)
    muster.ready()
    found = muster.wait_for_end(muster.submit("hostile.look", {"backwards": canary[::-1]})).result

    assert found["found"] == []
    assert any("worker --name w1" in name for name in found["ancestors"])
    assert CREDENTIALS.isdisjoint(found["environment"])
    assert not [name for name in found["environment"] if name.startswith("MUSTER_")]


@ONE_BACKEND
def test_trusted_action_finds_them_and_so_the_search_finds_what_is_there(
    with_canary: Callable[..., Installation], canary: str, place: Path
) -> None:
    muster = with_canary(least_isolation="trusted")
    muster.start_executor()
    muster.start_worker()
    muster.ready()
    look = muster.submit("hostile.look_trusted", {"backwards": canary[::-1]})

    assert muster.wait_for_end(look).result["found"] != []
    file = place / "pickled"
    muster.submit("hostile.pickle_trusted", {"file": str(file)})
    muster.wait_for(file.exists, "no pickle was read, so the other test shows nothing")


@ONE_BACKEND
def test_pickle_in_any_pipe_is_read_by_nobody(install: Callable[..., Any], place: Path) -> None:
    muster: Installation = install()
    muster.start_executor()
    worker = muster.start_worker()
    muster.ready()
    file = place / "pickled"
    for _ in range(4):
        row = muster.wait_for_end(muster.submit("hostile.pickle", {"file": str(file)}))
        assert row.status == "failed"

    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    assert not file.exists()
    assert worker.process.poll() is None
    assert muster.worker("w1").incarnation == 1
    muster.check_accounts()


@SERVERS
@pytest.mark.slow
def test_code_of_muster_in_an_action_leads_to_no_server(with_canary: Callable[..., Any]) -> None:
    muster = with_canary()
    muster.start_executor()
    muster.start_worker()
    muster.ready()
    row = muster.wait_for_end(muster.submit("hostile.database"))
    assert row.result == {"vendor": "sqlite", "broker": "sqlitemq"}


@users.needs_root
def test_worker_without_root_keeps_its_memory_from_actions_of_its_user(
    embedded_backend: Backend, canary: str, place: Path
) -> None:
    muster = Installation(embedded_backend, data_dir=str(place / "data"))
    try:
        shutil.copytree(muster.directory, place / "data", ignore=shutil.ignore_patterns("tmp"))
        muster.environment |= {"SECRET_KEY": canary, "TMPDIR": str(place)}
        for path in (place / "data", *(place / "data").iterdir()):
            shutil.chown(path, users.OTHER)
        as_other = ["setpriv", f"--reuid={users.OTHER}", "--clear-groups", "--no-new-privs"]
        wrapper = [*users.reachable(place), *as_other]
        muster.start("executor", "manage.py", "executor", wrapper=wrapper)
        worker = muster.start_worker(wrapper=wrapper)
        muster.ready()
        row = muster.wait_for_end(muster.submit("hostile.look", {"backwards": canary[::-1]}))

        assert row.result["uid"] == psutil.Process(worker.pid).uids().real != 0
        assert any("worker --name w1" in name for name in row.result["ancestors"])
        assert row.result["found"] == []
    finally:
        muster.close()


@ONE_BACKEND  # whose files are beside the worker
@users.needs_root
@pytest.mark.slow
def test_no_action_is_root_or_its_worker_where_actions_have_a_user(
    with_canary: Callable[..., Installation], canary: str, place: Path
) -> None:
    muster = with_canary(
        action_user=users.OTHER, http_allowed_networks="127.0.0.1/32", cancel_grace_seconds=0.5
    )
    muster.start_executor()
    worker = muster.start_worker(concurrency=8, wrapper=users.reachable(place), TMPDIR=str(place))
    muster.ready()
    with silent_server() as (port, came):
        names = ["who", "who_alone", "who_as_user", "who_shell"]
        names += ["who_node"] if shutil.which("node") else []
        ids = [muster.submit(f"hostile.{name}", {"seconds": 60}) for name in names]
        ids.append(muster.submit("core.http_get", {"url": f"http://127.0.0.1:{port}/"}))
        assert came.wait(20)
        muster.wait_for(lambda: len(actions_of(worker)) > len(names), "not all of them run")
        found = {(process.username(), process.pid) for process in actions_of(worker)}
        for id in ids:
            muster.cancel(id)
        muster.wait_for_ends(ids)

    assert {user for user, _ in found} == {users.OTHER}
    assert getpass.getuser() != users.OTHER
    shadow = muster.wait_for_end(muster.submit("core.sha256", {"path": "/etc/shadow"}))
    assert (shadow.status, shadow.result["exception"]) == ("failed", "PermissionError")
    files = [str(muster.directory / name) for name in ("muster.db", "broker.db", "secret_key")]
    harm = muster.wait_for_end(muster.submit("hostile.harm", {"paths": ["/etc/shadow", *files]}))
    assert harm.result == {"read": [], "signalled": []}
    look = muster.wait_for_end(muster.submit("hostile.look", {"backwards": canary[::-1]}))
    assert look.result["found"] == []
    rows = [muster.submit(f"hostile.{name}", {"seconds": 0.01}) for name in names]
    for row in muster.wait_for_ends(rows):
        assert row.status == "completed", row.result
        assert "65534" in str(row.result)
    assert muster.worker("w1").isolation == "user"


def actions_of(worker: Service) -> list[psutil.Process]:
    own = own_children(worker)
    return [process for process in worker.tree() if process not in own]


@ONE_BACKEND
def test_action_that_needs_a_user_of_its_own_goes_to_no_worker_without_one(
    shared: Installation,
) -> None:
    row = shared.wait_for_end(shared.submit("hostile.who_as_user", {"seconds": 0}))
    assert (row.status, row.reason) == ("failed", "no_worker_available")
    assert "none with the runtime python gives the isolation user" in row.result["message"]


# --- what messages can do ------------------------------------------------------------------------


@pytest.mark.slow
def test_remote_control_of_celery_is_off(shared: Installation) -> None:
    before = [shared.worker(name).incarnation for name in ("w1", "w2")]
    queue = shared.client.call("queues_of_worker", id=shared.worker("w1").id)[0][0]
    orders: dict[str, dict[str, Any]] = {
        "ping": {},
        "cancel_consumer": {"queue": queue},
        "rate_limit": {"task_name": "muster.run", "rate_limit": "1/h"},
        "time_limit": {"task_name": "muster.run", "hard": 0.01},
        "pool_restart": {},
        "shutdown": {},
    }
    for command, arguments in orders.items():
        assert shared.client.call("broadcast", command=command, arguments=arguments) == []

    rows = shared.wait_for_ends(shared.submit_many([{} for _ in range(20)], "core.noop"))
    assert {row.status for row in rows} == {"completed"}
    assert {row.worker_id for row in rows} == {shared.worker(name).id for name in ("w1", "w2")}
    assert all(service.process.poll() is None for service in shared.services)
    assert [shared.worker(name).incarnation for name in ("w1", "w2")] == before


def test_forged_cancel_stops_nothing(shared: Installation) -> None:
    id = shared.submit_note("forged", seconds=2)
    shared.wait_for_start("forged")
    row = shared.execution(id)
    for attempt in (1, 1, 2):
        shared.client.call("forge_cancel", id=id, attempt=attempt, worker_id=row.worker_id)

    row = shared.wait_for_end(id)
    assert (row.status, row.reason) == ("completed", "succeeded")
    assert shared.story(id) == ["schedule", "claim", "complete"]
    shared.check_accounts()


@SERVERS
def test_cancel_whose_message_is_lost_stops_it_long_before_the_next_heartbeat(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    """Within two seconds on a machine that does nothing else."""
    muster: Installation = install(heartbeat_interval_seconds=10, staleness_multiplier=3)
    muster.start_executor()
    muster.start_worker()
    muster.ready()
    id = muster.submit_note("lost cancel", seconds=60)
    muster.wait_for_start("lost cancel")
    muster.wait_for_status(id, "running")

    began = time.monotonic()
    assert muster.client.call("cancel_without_message", id=id) == "canceling"
    row = muster.wait_for_end(id)

    seconds = time.monotonic() - began
    measured("cancel whose message was lost, to cancelled", seconds)
    assert (row.status, row.reason) == ("cancelled", "cancelled_running")
    assert seconds < 8
    assert muster.journal.ends("lost cancel") == []


@ONE_BACKEND
def test_worker_that_stops_leaves_neither_processes_nor_directories(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    muster.start_executor()
    workers = [muster.start_worker("w1", pool="prefork"), muster.start_worker("w2", pool="threads")]
    muster.ready()
    muster.wait_for_ends([muster.submit("core.noop") for _ in range(12)])
    below = [process for worker in workers for process in worker.tree()]
    assert len(list((muster.directory / "tmp").glob("muster-attempt-warm-*"))) >= 2

    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.exit_status() == 0

    assert not any(map(servers.is_alive, below))
    assert list((muster.directory / "tmp").glob("muster-attempt-warm-*")) == []


@ONE_BACKEND
def test_processes_of_a_killed_worker_end_whether_they_work_or_wait(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    muster.start_executor()
    worker = muster.start_worker(concurrency=2)
    muster.ready()
    muster.wait_for_ends([muster.submit("core.noop") for _ in range(6)])
    muster.submit_note("at work", seconds=60)
    muster.wait_for_start("at work")
    below = [process for process in worker.tree() if process.pid != worker.pid]
    assert sum("keeper.py" in " ".join(process.cmdline()) for process in below) >= 2

    worker.kill()

    muster.wait_for(lambda: not any(map(servers.is_alive, below)), "some live on", within_seconds=3)
