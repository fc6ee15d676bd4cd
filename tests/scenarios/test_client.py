"""The clients on a real installation: over TCP, with a real event loop, and a server that goes."""

from __future__ import annotations

import asyncio
import socket
import threading
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from muster_client import AsyncMuster, ExecutionDidNotComplete, Muster
from orchestrator.drills.drill.relay import Relay
from tests import servers
from tests.scenarios.installation import Installation

# the clients know the API alone
pytestmark = pytest.mark.parametrize("backend", ["embedded"], indirect=True)

STORY = ["schedule", "claim", "complete"]


@pytest.fixture
def url(shared: Installation) -> str:
    """Where the API listens."""
    url = shared.serve()
    shared.ready()
    return url


def test_actions_run_and_are_followed_to_their_ends(shared: Installation, url: str) -> None:
    with Muster(url, token=shared.token("blocking")) as muster:
        assert muster.run("core.echo", {"n": 1}, wait_seconds=60) == {"n": 1}

        execution = muster.submit("core.sleep", {"seconds": 0.3})
        assert [event.event for event in muster.follow(execution.id, timeout_seconds=60)] == STORY

        with pytest.raises(ExecutionDidNotComplete, match="no paper"):
            muster.run("core.fail", {"message": "no paper"}, wait_seconds=60)

        running = muster.submit("core.sleep", {"seconds": 60})
        for event in muster.follow(running.id, timeout_seconds=60):
            if event.event == "claim":
                muster.cancel(running.id)
        assert muster.get(running.id).status == "cancelled"


def test_tasks_of_one_event_loop_wait_for_many_executions(shared: Installation, url: str) -> None:
    async def work() -> list[int]:
        async with AsyncMuster(url, token=shared.token("loop")) as muster:
            ids = await muster.submit_many(
                {"action_ref": "core.echo", "parameters": {"n": n}} for n in range(20)
            )
            ends = await asyncio.gather(
                *(muster.wait(id, timeout_seconds=60) for id in ids),
            )
            followed = [event.event async for event in muster.follow(ids[0])]
            assert followed == STORY
            return [end.result["n"] for end in ends]

    assert asyncio.run(work()) == list(range(20))


def test_submit_waits_for_a_server_that_is_not_up_yet(shared: Installation) -> None:
    port = servers.free_port()
    found: list[UUID] = []

    def submit(token: str) -> None:
        with Muster(f"http://127.0.0.1:{port}", token=token) as muster:
            found.append(muster.submit("core.echo", {"n": 1}, idempotency_key="early").id)

    thread = threading.Thread(target=submit, args=(shared.token("early"),))
    thread.start()
    shared.start_api(port)
    thread.join(60)

    assert shared.wait_for_end(found[0]).result == {"n": 1}


class Losing(Relay):
    """A wire that breaks when the server answers, so many times."""

    def __init__(self, port: int, *, times: int) -> None:
        super().__init__("127.0.0.1", port)
        self.times = times

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        if self.times and source.getpeername()[1] == self.target[1]:
            source.recv(1)
            self.times -= 1
            sink.shutdown(socket.SHUT_RDWR)
        super()._pass_on(source, sink)


def test_execution_whose_answers_were_lost_runs_once(shared: Installation, url: str) -> None:
    port = urlsplit(url).port
    assert port is not None
    wire = Losing(port, times=2)
    with (
        wire,
        Muster(f"http://127.0.0.1:{wire.port}", token=shared.token("lossy")) as muster,
    ):
        execution = muster.submit("core.echo", correlation_id="lost answers")
        assert muster.wait(execution.id, timeout_seconds=60).is_completed

    assert wire.times == 0
    rows = shared.executions().values()
    assert [row.id for row in rows if row.correlation_id == "lost answers"] == [execution.id]
