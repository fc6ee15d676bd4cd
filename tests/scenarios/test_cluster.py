"""A RabbitMQ of three nodes loses one of them, whichever it is: what is accepted runs, and soon.

The executor declares the shared queues through the first node, each worker its own through another:
there they are led, and classic queues are nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from tests import servers
from tests.scenarios.installation import Backend, Installation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CONFIGURATION = "cluster_partition_handling = pause_minority\nnet_ticktime = 8\n"
WORKERS = ("w1", "w2")
SILENT_SECONDS = 90
"""A connection is given up after 20 s without a sign of life."""
SOON_SECONDS = 30
"""A message that went down with a node is missed after 10 s, and its execution goes elsewhere."""


class Cluster(Backend):
    """A backend whose RabbitMQ has three nodes."""

    def __init__(self, postgres: servers.PostgresServer, nodes: list[servers.RabbitServer]) -> None:
        super().__init__(postgres, nodes[0])
        self.nodes = nodes

    def restore(self) -> None:
        for node in self.nodes:
            node.resume() if node.is_running else node.start()
        super().restore()

    def _broker_url(self) -> str:
        virtual_host = super()._broker_url().rpartition("/")[2]
        return ";".join(f"{node.url.rpartition('//')[0]}/{virtual_host}" for node in self.nodes)


@pytest.fixture(scope="module")
def cluster(shared_postgres: servers.PostgresServer) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(servers.RabbitServer(configuration=CONFIGURATION))
        nodes = [first]
        for _ in range(2):
            other = servers.RabbitServer(configuration=CONFIGURATION, joins=first)
            nodes.append(stack.enter_context(other))
        backend = Cluster(shared_postgres, nodes)
        stack.callback(backend.close)
        yield backend


@pytest.fixture(scope="module")
def backend(cluster: Cluster) -> Backend:
    return cluster


@pytest.fixture(params=["classic", "quorum"])
def muster(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An executor and two workers, each at another node."""
    installation = Installation(cluster, queue_type=request.param)
    try:
        installation.start_executor()
        urls = installation.login("worker")["BROKER_URL"].split(";")
        for position, name in enumerate(WORKERS, start=1):
            own_first = [*urls[position:], *urls[:position]]
            installation.start_worker(name, BROKER_URL=";".join(own_first))
        installation.ready()
        yield installation
    finally:
        cluster.restore()
        installation.close()


@pytest.mark.parametrize("position", [0, 1, 2])
def test_node_that_dies_keeps_nothing_from_running(
    muster: Installation,
    cluster: Cluster,
    position: int,
    measured: Callable[[str, float], None],
) -> None:
    before = _submit(muster, "before", 10)
    cluster.nodes[position].kill()
    after = _submit(muster, "after", 30)

    rows = muster.wait_for_ends([*before, *after], within_seconds=SOON_SECONDS)
    assert {(row.status, row.retry_count) for row in rows} == {("completed", 0)}
    muster.check_each_started_once([*before, *after])
    slowest = max((row.ended_at - row.created_at).total_seconds() for row in rows)
    measured(f"node {position} dies, {muster.settings['queue_type']}: the slowest", slowest)

    has_queues_elsewhere = muster.settings["queue_type"] == "quorum" or position == 0
    if has_queues_elsewhere:
        muster.wait_until_active(*WORKERS)
    cluster.nodes[position].start()
    muster.wait_until_active(*WORKERS)
    _assert_all_run(muster, _submit(muster, "again", 10))
    muster.check_lives()


@pytest.mark.parametrize("position", [0, 1])
def test_node_that_falls_silent_is_left_for_another(
    muster: Installation, cluster: Cluster, position: int
) -> None:
    node = cluster.nodes[position]
    node.pause()
    _assert_all_run(muster, _submit(muster, "silent", 30), within_seconds=SILENT_SECONDS)

    node.kill()  # resumed, it would believe that the others had been away
    node.start()
    muster.wait_until_active(*WORKERS)
    _assert_all_run(muster, _submit(muster, "again", 10))


def _submit(muster: Installation, label: str, number: int) -> list[UUID]:
    return [muster.submit_note(f"{label} {n}", seconds=0.05) for n in range(number)]


def _assert_all_run(
    muster: Installation, ids: list[UUID], *, within_seconds: float = SOON_SECONDS
) -> None:
    rows = muster.wait_for_ends(ids, within_seconds=within_seconds)
    assert {row.status for row in rows} == {"completed"}
