"""What is asked for runs, once, and is told in order."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from tests.scenarios.installation import Installation

STORY = ["schedule", "claim", "complete"]


def test_python_action_runs_and_its_times_are_in_order(shared: Installation) -> None:
    id = shared.submit("core.echo", {"text": "hello", "n": 1})

    row = shared.wait_for_end(id)

    assert (row.status, row.reason) == ("completed", "succeeded")
    assert row.result == {"text": "hello", "n": 1}
    assert (row.attempt, row.retry_count) == (1, 0)
    times = [row.created_at, row.scheduled_at, row.started_at, row.ended_at, row.deadline_at]
    assert all(
        later - earlier > -PROCESSES_DIFFER_BY for earlier, later in itertools.pairwise(times)
    )
    assert shared.story(id) == STORY
    events = shared.events(id)
    assert [event.at for event in events] == times[1:4]
    # whether nothing else waits at that moment depends on the tests before
    assert events[0].actor in ("executor", "acceptance")
    assert events[1].actor == events[2].actor
    assert events[1].actor in ("w1", "w2")
    shared.check_accounts()


def test_digest_of_a_file_is_that_of_the_file(shared: Installation) -> None:
    file = shared.directory / "to_be_hashed"
    file.write_bytes(b"muster" * 1000)

    row = shared.wait_for_end(shared.submit("core.sha256", {"path": str(file)}))

    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert row.result == {"sha256": digest, "bytes": 6000}


def test_shell_action_returns_what_the_command_wrote(shared: Installation) -> None:
    argv = ["sh", "-c", "echo out; echo err >&2"]

    row = shared.wait_for_end(shared.submit("core.shell", {"argv": argv}))

    assert (row.status, row.reason) == ("completed", "succeeded")
    result = row.result
    assert (result["exit_code"], result["stdout"], result["stderr"]) == (0, "out\n", "err\n")


def test_hundred_at_once_on_two_workers_each_start_once(shared: Installation) -> None:
    shared.wait_until_all_goes_to("w1", "w2")
    journal = str(shared.journal.path)
    news = [{"parameters": {"journal": journal, "label": f"bulk {n}"}} for n in range(100)]

    ids = shared.submit_many(news, "scenario.note")
    rows = shared.wait_for_ends(ids)

    # one that waited for long behind others is moved to the other worker, uncounted
    assert {(row.status, row.retry_count) for row in rows} == {("completed", 0)}
    assert [row.result["label"] for row in rows] == [f"bulk {n}" for n in range(100)]
    assert len({row.worker_id for row in rows}) == 2
    started = Counter(note.label for note in shared.journal.starts())
    assert [started[f"bulk {n}"] for n in range(100)] == [1] * 100
    histories = shared.client.call("histories")
    ends = {tuple(event.event for event in histories[id][-3:]) for id in ids}
    assert ends == {tuple(STORY)}
    shared.check_accounts()


def test_repeated_idempotency_key_gives_the_first_execution(shared: Installation) -> None:
    first = shared.submit("core.echo", {"n": 1}, idempotency_key="once")
    again = shared.submit("core.echo", {"n": 1}, idempotency_key="once")

    assert again == first
    assert shared.wait_for_end(first).status == "completed"
    assert shared.story(first) == STORY


def test_submit_to_start_takes_less_than_a_second(
    shared: Installation, measured: Callable[..., None]
) -> None:
    def delay() -> float:
        row = shared.wait_for_end(shared.submit("core.noop"))
        seconds: float = (row.started_at - row.created_at).total_seconds()
        return seconds

    delays = sorted(delay() for _ in range(10))

    measured("submit to start, median", delays[5])
    measured("submit to start, slowest of 10", delays[-1])
    assert delays[0] < 1


@pytest.mark.parametrize("pool", ["threads"])
def test_threads_run_the_same_actions(install: Any, pool: str) -> None:
    muster = install()
    muster.start_executor()
    muster.start_worker("w1", pool=pool, concurrency=4)
    muster.ready()

    ids = [muster.submit_note(f"threads {n}", seconds=0.2) for n in range(8)]
    shell = muster.submit("core.shell", {"argv": ["echo", "hi"]})
    rows = muster.wait_for_ends([*ids, shell])

    assert {row.status for row in rows} == {"completed"}
    labels = sorted(note.label for note in muster.journal.starts())
    assert labels == [f"threads {n}" for n in range(8)]
    muster.check_accounts()
