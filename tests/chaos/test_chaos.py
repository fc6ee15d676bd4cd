"""The small storm of every test run; `make chaos` is the large one."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

from tests.chaos import (
    breaking,
    evidence,
    failpoints,
    faults,
    garbage,
    message_faults,
    onlookers,
    storm,
)
from tests.chaos.outcome import summary
from tests.scenarios.installation import Backend, Installation

MALFORMED = 10_000 if os.environ.get("CHAOS_NIGHTLY") else 2_000

OTHER_FAULTS = 4
"""Kinds beside those that every storm has, others each time."""

KILLS = 4
"""Failpoints that end a process, beside all that only lie."""

pytestmark = [pytest.mark.slow, pytest.mark.scenario, pytest.mark.timeout(1_500)]


@pytest.mark.alone
def test_promise_holds_on_servers_while_everything_breaks(real: Backend, seed: int) -> None:
    """Somebody looks at all pages of the console meanwhile."""
    points = failpoints.some(kills=KILLS, seed=seed)

    _hold(
        real,
        executions=300,
        steps=60,
        submit_seconds=30,
        seed=seed,
        points=points,
        beside=onlookers.Onlookers,
    )


@pytest.mark.alone
def test_promise_holds_embedded_while_everything_breaks(seed: int) -> None:
    backend = Backend()
    try:
        _hold(backend, executions=120, steps=30, submit_seconds=15, seed=seed, workers=2)
    finally:
        backend.close()


def _hold(backend: Backend, *, executions: int, seed: int, **more: Any) -> None:
    kinds = faults.some(backend, number=OTHER_FAULTS, seed=seed)
    outcome = storm.run(
        backend, executions=executions, faults_of_a_kind=1, kinds=kinds, seed=seed, **more
    )

    told = summary(outcome)
    assert len(outcome.evidence.accepted) >= executions, told
    assert not outcome.violations, told
    assert not outcome.unreached, told
    assert not outcome.ended_by_themselves, told


def test_every_malformed_message_is_kept_and_ends_nobody(real: Backend, seed: int) -> None:
    muster = Installation(real)
    try:
        services = [muster.start_executor(), muster.start_worker("w1")]
        muster.ready()
        database = evidence.Database(muster)
        rng = random.Random(seed)
        sent: dict[bytes, str] = {}
        queues = [name for name in message_faults.queue_names(muster) if "maintenance" not in name]
        with breaking.channel_of(muster) as channel:
            for _ in range(MALFORMED):
                thing, queue = garbage.make(rng), rng.choice(queues)
                sent[thing.body] = f"{queue} {thing.headers} {thing.content_type}"
                breaking.put(channel, queue, thing)

        def missing() -> list[bytes]:
            entries = database.select("SELECT raw_body FROM orchestrator_dlqentry")
            return list(sent.keys() - {bytes(entry["raw_body"]) for entry in entries})

        ends_at = time.monotonic() + 240
        while (left := missing()) and time.monotonic() < ends_at:
            time.sleep(0.5)

        assert len(sent) == MALFORMED
        assert not left, [f"{sent[body]} {body[:300]!r}" for body in left[:20]]
        assert [service.process.poll() for service in services] == [None, None]
        assert muster.worker("w1").incarnation == 1
        assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    finally:
        muster.close()
