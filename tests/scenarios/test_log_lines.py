"""What an operator looks for in the logs: the words of the runbooks, with ids as fields.

Nothing of this depends on the backend.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from signal import SIGKILL, SIGTERM
from typing import Any

import psutil
import pytest

from tests.scenarios.installation import SOON_LOST, Backend, Installation, Service

RUNS = 40


def lines(service: Service) -> list[dict[str, Any]]:
    """What it has logged; a line that is no JSON fails the test. The last one may be
    incomplete."""
    whole = service.log().rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in whole if line]


def found(service: Service, event: str, **facts: Any) -> list[dict[str, Any]]:
    return [
        line for line in lines(service) if line["event"] == event and facts.items() <= line.items()
    ]


@pytest.fixture(scope="module")
def muster(embedded_backend: Backend) -> Iterator[Installation]:
    installation = Installation(embedded_backend, **SOON_LOST)
    try:
        installation.environment["LOG_FORMAT"] = "json"
        installation.start_executor()
        installation.start_worker("w1")
        installation.start_sensor()
        installation.start_notifier()
        installation.is_forked = False  # as a fork, Python warns of `python -m`
        installation.start_beat()
        installation.is_forked = True
        installation.serve()
        installation.ready()
        yield installation
    finally:
        installation.close()


def test_each_service_logs_the_infrastructure_that_it_has_set_up_once(muster: Installation) -> None:
    w1 = muster.worker("w1").id
    letters = f"{muster.settings['namespace']}.dlx.queue"
    requests = f"{muster.settings['namespace']}.execution.requests.queue"
    dispatches = f"{muster.settings['namespace']}.worker.{w1}.executions"
    for name, queue in (
        ("api", letters),
        ("executor", requests),
        ("w1", dispatches),
        ("sensor", letters),  # before it has published anything
        ("notifier", letters),
    ):
        service = muster.service(name)
        setups = muster.wait_for(
            partial(found, service, "infrastructure setup"), f"{name} says nothing"
        )
        assert queue in setups[0]["queues"]
        assert setups[0]["level"] == "info"
        named = [queue for setup in setups for queue in setup["queues"]]
        assert len(named) == len(set(named))


def test_each_consumer_logs_its_queue_and_prefetch(muster: Installation) -> None:
    namespace = muster.settings["namespace"]
    executor = {
        line["queue"]: line["prefetch"]
        for line in found(muster.service("executor"), "Consumer started")
    }
    assert executor.keys() >= {
        f"{namespace}.execution.requests.queue",
        f"{namespace}.execution.completed.queue",
        f"{namespace}.maintenance.queue",
    }
    assert executor[f"{namespace}.execution.requests.queue"] > 0
    w1 = muster.worker("w1").id
    worker = {line["queue"] for line in found(muster.service("w1"), "Consumer started")}
    assert worker == {f"{namespace}.worker.{w1}.{purpose}" for purpose in ("executions", "cancel")}
    notifier = muster.wait_for(
        partial(found, muster.service("notifier"), "Consumer started"), "the notifier says nothing"
    )
    assert notifier[0]["queue"].startswith(f"{namespace}.notifications.queue.")
    assert notifier[0]["prefetch"] == 0


def test_what_ends_well_is_counted_and_not_listed(muster: Installation) -> None:
    ids = muster.submit_notes(*({"label": f"n {number}"} for number in range(RUNS)))
    muster.wait_for_ends(ids)

    def counted() -> bool:
        ended = found(muster.service("executor"), "executions ended", reason="succeeded")
        return bool(sum(line["n"] for line in ended) >= RUNS)

    muster.wait_for(counted, "the ends are not counted")
    for service in muster.services:
        text = service.log()
        assert not [id for id in ids if str(id) in text]


def test_execution_that_ran_too_long_is_logged_by_its_worker(muster: Installation) -> None:
    id = muster.submit_note("long", seconds=60, timeout_seconds=1)
    muster.wait_for_end(id)
    (line,) = muster.wait_for(
        lambda: found(muster.service("w1"), "execution timed out", execution_id=str(id)), "no line"
    )
    assert line["reason"] == "run_timeout"
    assert (line["level"], line["attempt"], line["tries_again"]) == ("warning", 1, False)
    assert line["worker_id"] == muster.worker("w1").id


def test_lost_worker_is_logged_with_what_it_ran(muster: Installation) -> None:
    muster.start_worker("w2")
    muster.ready()
    held = muster.submit_note("held", seconds=300, worker_id=muster.worker("w2").id)
    muster.wait_for_start("held")
    muster.service("w2").kill_tree()
    muster.wait_for_end(held)

    executor = muster.service("executor")
    (lost,) = muster.wait_for(lambda: found(executor, "worker lost", worker="w2"), "no line")
    assert lost["worker_id"] == muster.worker("w2").id
    (abandoned,) = muster.wait_for(
        lambda: found(executor, "execution abandoned", execution_id=str(held)), "no line"
    )
    assert abandoned["reason"] == "worker_lost"


def test_worker_that_is_stopped_logs_its_steps(muster: Installation) -> None:
    w3 = muster.start_worker("w3")
    muster.ready()
    w3.signal(SIGTERM)
    assert w3.exit_status() == 0
    (begun,) = found(w3, "Worker shutting down gracefully", worker="w3")
    assert begun["reason"] == "shutting down (SIGTERM)"
    assert begun["within_seconds"] == muster.settings["shutdown_timeout_seconds"]
    assert begun["running"] == 0
    (ended,) = found(w3, "Worker shutdown complete", worker="w3")
    assert begun["timestamp"] <= ended["timestamp"]


def test_executor_that_is_stopped_logs_its_steps(muster: Installation) -> None:
    executor = muster.start_executor("executor-2")
    muster.ready()
    executor.signal(SIGTERM)
    assert executor.exit_status() == 0
    for event in ("Executor shutting down gracefully", "Executor shutdown complete"):
        (line,) = found(executor, event)
        assert line["node"].startswith("executor-2@")


def test_what_beat_sends_of_its_own_and_executors_run_is_no_line(muster: Installation) -> None:
    before = muster.client.call("ticks")
    muster.wait_for(
        lambda: all(at > before[name] for name, at in muster.client.call("ticks").items()
                    if name == "muster.check_timeouts"),
        "nothing runs",
    )  # fmt: skip
    for name in ("beat", "executor", "w1"):
        service = muster.service(name)
        assert lines(service)
        own = re.findall("Sending due task muster|Task muster.* (received|succ)", service.log())
        assert not own


def test_pool_process_that_dies_is_a_line(muster: Installation) -> None:
    w5 = muster.start_worker("w5", pool="prefork")
    muster.ready()
    worker = psutil.Process(w5.pid)
    forks = [each for each in worker.children() if each.cmdline() == worker.cmdline()]
    forks[0].kill()
    (line,) = muster.wait_for(
        lambda: [each for each in lines(w5) if each["logger"] == "multiprocessing"], "no line"
    )
    assert str(forks[0].pid) in line["event"]


def test_worker_that_is_killed_by_its_sentinel_says_why(muster: Installation) -> None:
    w4 = muster.start_worker("w4", pool="prefork")
    muster.ready()
    w4.pause()
    (line,) = muster.wait_for(
        lambda: [each for each in lines(w4) if each["logger"] == "workers.sentinel"], "no line"
    )
    assert (line["level"], line["pid"]) == ("error", w4.pid)
    assert line["event"].startswith("no heartbeat of the worker could be renewed")
    assert w4.exit_status() == -SIGKILL
