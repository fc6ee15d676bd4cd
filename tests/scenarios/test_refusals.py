"""What cannot work says so and exits; it does not wait for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import START_SECONDS, Installation

# what a process reads before it asks any server
EMBEDDED = pytest.mark.parametrize("backend", ["embedded"], indirect=True)


@EMBEDDED
def test_unknown_queue_is_named_and_ends_the_process(install: Callable[..., Any]) -> None:
    muster: Installation = install()

    command = ("-m", "celery", "-A", "settings", "worker", "-Q", "no.such.queue")
    service = muster.start("celery", *command)

    assert service.exit_status() != 0
    assert "no.such.queue" in service.log()
    assert muster.client.call("queue_length", name="no.such.queue") is None


def test_queue_with_another_ttl_is_named_and_ends_the_worker(install: Callable[..., Any]) -> None:
    muster: Installation = install(logins=False)
    first = muster.start_worker("w1")
    muster.ready()
    first.kill_tree()

    changed = muster.start_worker("w1", MUSTER_WORKER_QUEUE_TTL_MS="45000")

    assert changed.exit_status() == 1
    told = changed.log()
    assert f"scenario.worker.{muster.worker('w1').id}.executions" in told
    assert "x-message-ttl" in told
    assert "manage.py topology" in told
    assert muster.worker("w1").incarnation == 1

    again = muster.start_worker("w1")
    muster.wait_for(again.is_up, "with the old TTL it does not start", within_seconds=START_SECONDS)
    assert muster.worker("w1").incarnation == 2


@EMBEDDED
def test_unknown_setting_is_named_and_ends_the_process(install: Callable[..., Any]) -> None:
    muster: Installation = install()

    service = muster.start_worker("w1", MUSTER_HEARTBEAT_INTERVALL_SECONDS="1")

    assert service.exit_status() == 1
    assert "MUSTER_HEARTBEAT_INTERVALL_SECONDS is not a setting" in service.log()
    assert "Did you mean MUSTER_HEARTBEAT_INTERVAL_SECONDS?" in service.log()


@pytest.mark.slow
def test_changed_ttl_of_dead_letters_ends_executor_and_worker_with_the_same_words(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(logins=False)
    first = muster.start_executor()
    muster.ready()
    first.kill_tree()
    accepted = muster.submit_note("later")

    changed: Any = {"MUSTER_DLX_QUEUE_TTL_MS": "70000"}
    refusal = (
        "queue scenario.dlx.queue: x-message-ttl: wanted 70000, found 86400000\n"
        "Stop who consumes them, then: manage.py topology migrate"
    )
    services = [
        muster.start_executor("changed", **changed),
        muster.start_worker("w1", **changed),
        muster.start("check", "manage.py", "topology", "check", **changed),
    ]
    for service in services:
        assert service.exit_status() == 1
        assert refusal in service.log()
        assert "Traceback" not in service.log()
    assert muster.worker("w1").incarnation == 0, "it has not registered"

    migration = muster.start("migrate", "manage.py", "topology", "migrate", **changed)
    assert migration.exit_status() == 0
    muster.start_executor("again", **changed)
    muster.start_worker("w1", **changed)
    muster.ready()
    row = muster.wait_for_end(accepted)
    assert row.status in ("completed", "failed"), "accepting has gone on meanwhile"


@pytest.mark.slow
def test_queue_that_comes_to_differ_later_ends_the_executor_and_makes_the_worker_unfit(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(logins=False)
    executor = muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    muster.wait_for_end(muster.submit_note("before"))

    muster.client.call("declare_otherwise", name="scenario.dlx.queue", ttl_ms=1_000)

    assert executor.exit_status() == 1
    told = executor.log()
    assert "scenario.dlx.queue: x-message-ttl: wanted 86400000, found 1000" in told
    assert "manage.py topology migrate" in told
    why = "scenario.dlx.queue: x-message-ttl"
    muster.wait_for(
        lambda: why in muster.worker("w1").failed_checks.get("queue", ""), "w1 says nothing"
    )


def test_worker_whose_own_queue_comes_to_differ_is_unfit_or_stops_and_says_why(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(logins=False)
    w1 = muster.start_worker("w1")
    muster.ready()
    name = f"scenario.worker.{muster.worker('w1').id}.executions"

    muster.client.call("declare_otherwise", name=name, ttl_ms=1_000)

    def is_unfit_and_says_why() -> bool:
        # its queue may lack its consumer first; it stops if it comes to declare the queue itself;
        # and its log is ahead of its row
        row = muster.worker("w1")
        reason = f"{name}: x-message-ttl: wanted 30000, found 1000"
        return row.status == "inactive" and reason in row.status_reason + w1.log()

    muster.wait_for(is_unfit_and_says_why, "it does not say why")
    assert "Traceback" not in w1.log()
