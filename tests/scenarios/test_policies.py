"""Policies with real processes: several executors, and workers and executors that are killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from time import time
from typing import Any

import pytest

from tests.scenarios.installation import SOON_LOST, Installation, Note, Service

EXECUTIONS = int(os.environ.get("TEST_POLICY_EXECUTIONS", "300"))
"""The whole size is 5,000, which takes some minutes: `TEST_POLICY_EXECUTIONS=5000`."""

HOSTS = [f"host{number}" for number in range(6)]
LIMIT = 3

Span = tuple[float, float]


def make_policy(muster: Installation, ref: str, **values: Any) -> None:
    muster.client.call("make_policy", ref=ref, **values)


def spans(notes: Iterable[Note], killed_at: Iterable[float]) -> list[Span]:
    """When each attempt ran. One without an end was killed: at the first kill after its start."""
    kills, begun, found = sorted(killed_at), {}, []
    for note in notes:
        key = note.execution, note.attempt
        if note.event == "start":
            begun[key] = note.at
        else:
            found.append((begun.pop(key), note.at))
    ends = [next((kill for kill in kills if kill >= at), at) for at in begun.values()]
    return found + list(zip(begun.values(), ends, strict=True))


def most_at_once(ran: Iterable[Span]) -> int:
    """The most that ran at one time. At the same time, an end comes before a start."""
    changes = sorted((at, change) for span in ran for at, change in zip(span, (1, -1), strict=True))
    most = running = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


@pytest.mark.slow
def test_limit_of_each_host_holds_while_everything_is_killed(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**SOON_LOST)
    make_policy(muster, "per-host", limit=LIMIT, keyed_by=["/label"])
    executors = [muster.start_executor(f"e{number}") for number in range(4)]
    workers = [muster.start_worker(f"w{number}", concurrency=8) for number in range(3)]
    muster.ready()
    notes = [
        {"label": HOSTS[number % len(HOSTS)], "action": "note_again", "seconds": 0.05}
        for number in range(EXECUTIONS)
    ]
    ids = [
        id
        for start in range(0, EXECUTIONS, 100)
        for id in muster.submit_notes(*notes[start : start + 100])
    ]

    killed_at = []
    for turn in range(3):
        _wait_for_ends(muster, EXECUTIONS * (turn + 1) // 5)
        killed_at.append(_kill_and_replace(muster, workers, executors, turn))
    ended = muster.wait_for_ends(ids, within_seconds=60 + EXECUTIONS / 5)

    assert {row.status for row in ended} <= {"completed", "abandoned"}
    assert sum(row.status == "abandoned" for row in ended) <= 3 * 16
    for host in HOSTS:
        ran = spans(muster.journal.notes(label=host), killed_at)
        assert most_at_once(ran) <= LIMIT, host
    muster.wait_for(lambda: muster.client.call("policy_rows") == (0, 0), "something is left")
    muster.check_accounts()


def _wait_for_ends(muster: Installation, number: int) -> None:
    muster.wait_for(
        lambda: len(muster.journal.ends()) >= number, "it does not go on", within_seconds=300
    )


def _kill_and_replace(
    muster: Installation, workers: list[Service], executors: list[Service], turn: int
) -> float:
    workers[turn].kill_tree()
    executors[turn].kill_tree()
    at = time()
    workers[turn] = muster.start_worker(f"w{turn}", concurrency=8)
    executors[turn] = muster.start_executor(f"e{turn}")
    return at


@pytest.mark.slow
def test_rate_holds_with_several_executors(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    make_policy(muster, "ten-a-second", kind="rate", limit=10, window_seconds=1)
    muster.start_executor("e1")
    muster.start_executor("e2")
    muster.start_worker("w1", concurrency=4)
    muster.ready()
    ids = muster.submit_notes(*({"label": f"r{number}"} for number in range(60)))
    rows = muster.wait_for_ends(ids)

    assert {row.status for row in rows} == {"completed"}
    starts = sorted(row.scheduled_at.timestamp() for row in rows)
    assert max(sum(at <= each <= at + 1 for each in starts) for at in starts) <= 20
    assert starts[-1] - starts[0] >= 4.9, "50 after the first ten, at ten a second"


@pytest.mark.slow
def test_what_waits_says_why_and_starts_when_the_policy_is_changed(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    muster.command("policy", "create", "one", "--kind", "concurrency", "--limit", "1")
    muster.start_executor()
    muster.start_worker("w1", concurrency=4)
    muster.ready()
    first = muster.submit_note("first", is_gated=True)
    muster.wait_for_start("first")
    second = muster.submit_note("second")
    waits = muster.wait_for_status(second, "scheduling")
    assert waits.wait_reason == "policy one: at most 1 at once"
    assert '"waiting": 1' in muster.command("policy", "list", "--json")
    muster.command("policy", "change", "one", "--limit", "2")
    muster.wait_for_end(second)
    muster.open_gate("first")
    muster.wait_for_end(first)
    muster.check_accounts()
