"""What cannot work says so and exits; it does not wait for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.scenarios.installation import Installation


def test_unknown_queue_is_named_and_ends_the_process(install: Callable[..., Any]) -> None:
    muster: Installation = install()

    command = ("-m", "celery", "-A", "settings", "worker", "-Q", "no.such.queue")
    service = muster.start("celery", *command)

    assert service.exit_status() != 0
    assert "no.such.queue" in service.log()
    assert muster.client.call("queue_length", name="no.such.queue") is None


def test_queue_with_another_ttl_is_named_and_ends_the_worker(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    first = muster.start_worker("w1")
    muster.ready()
    first.kill_tree()

    changed = muster.start_worker("w1", MUSTER_WORKER_QUEUE_TTL_MS="45000")

    assert changed.exit_status() == 1
    told = changed.log()
    assert f"worker.{muster.worker('w1').id}.executions" in told
    assert "x-message-ttl" in told
    assert "manage.py topology" in told
    assert muster.worker("w1").incarnation == 1

    again = muster.start_worker("w1")
    muster.wait_for(again.is_up, "with the old TTL it does not start")
    assert muster.worker("w1").incarnation == 2


def test_unknown_setting_is_named_and_ends_the_process(install: Callable[..., Any]) -> None:
    muster: Installation = install()

    service = muster.start_worker("w1", MUSTER_HEARTBEAT_INTERVALL_SECONDS="1")

    assert service.exit_status() == 1
    assert "MUSTER_HEARTBEAT_INTERVALL_SECONDS is not a setting" in service.log()
    assert "Did you mean MUSTER_HEARTBEAT_INTERVAL_SECONDS?" in service.log()
