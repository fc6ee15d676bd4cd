"""Letters that are late, and letters that are no letters."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from tests.scenarios.installation import Installation, Service

STORY = ["schedule", "claim", "complete"]


def _post_dead_letter(muster: Installation, id: UUID, *, attempt: int, worker_id: int) -> None:
    """What the broker would put into the dead letter queue, had that attempt expired."""
    queue = f"scenario.worker.{worker_id}.executions"
    death = {
        "reason": "expired",
        "queue": queue,
        "exchange": "scenario.executions",
        "routing-keys": [f"execution.dispatch.worker.{worker_id}"],
        "count": 1,
    }
    muster.client.call(
        "publish",
        queue=muster.client.call("queue_names")["dead_letters"],
        body=json.dumps([[], {"execution_id": str(id), "attempt": attempt}, {}]).encode(),
        headers={"task": "muster.run", "id": f"{id}.{attempt}", "x-death": [death]},
        content_type="application/json",
        content_encoding="utf-8",
    )


def _stale(executor: Service) -> int:
    """How many letters have turned out to be about nothing that waits any more."""
    return sum(int(number) for number in re.findall(r"stale=(\d+)", executor.log()))


def test_dead_letter_of_a_running_or_completed_execution_changes_nothing(
    shared: Installation,
) -> None:
    worker_id = shared.worker("w1").id
    done = shared.submit_note("done", worker_id=worker_id)
    before = shared.wait_for_end(done)
    running = shared.submit_note("running", is_gated=True, worker_id=worker_id)
    shared.wait_for_status(running, "running")

    for id in (done, running):
        _post_dead_letter(shared, id, attempt=1, worker_id=worker_id)
    shared.wait_for(lambda: _stale(shared.service("executor")) == 2, "the letters were not drained")

    assert shared.execution(running).status == "running"
    shared.open_gate("running")
    assert shared.wait_for_end(running).status == "completed"
    assert shared.execution(done) == before
    assert (shared.story(done), shared.story(running)) == (STORY, STORY)
    assert shared.dlq_entries() == []
    shared.check_accounts()


def test_dead_letter_of_the_first_attempt_leaves_the_second_alone(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    executor = muster.start_executor()
    # two workers that are up as far as anybody can tell, and take nothing
    ids = [muster.client.call("enlist", name=name) for name in ("mute1", "mute2")]
    for worker_id in ids:
        muster.client.call("declare_worker_queues", id=worker_id)
    muster.ready()

    def is_beside_fresh_workers(look: Callable[[], bool]) -> bool:
        for worker_id in ids:
            muster.client.call("keep_fresh", id=worker_id, runtimes=["python"])
        return look()

    def wait_for(look: Callable[[], bool], what: str) -> None:
        muster.wait_for(partial(is_beside_fresh_workers, look), what)

    is_beside_fresh_workers(bool)
    # a limit of its own: without one it would go back, as its worker seems to live
    id = muster.submit_note("never", action="note_again", queue_ttl_ms=30_000)

    def is_at_attempt(number: int) -> bool:
        row = muster.execution(id)
        return bool(row.status == "scheduled" and row.attempt == number)

    wait_for(partial(is_at_attempt, 1), "it was not dispatched")
    first = muster.execution(id).worker_id
    _post_dead_letter(muster, id, attempt=1, worker_id=first)
    wait_for(partial(is_at_attempt, 2), "there was no second attempt")
    before = muster.execution(id)
    [entry] = muster.dlq_entries()

    _post_dead_letter(muster, id, attempt=1, worker_id=first)
    wait_for(lambda: _stale(executor) == 1, "the letter was not drained")

    assert muster.execution(id) == before
    assert muster.dlq_entries() == [entry]
    assert entry.attempt == 1
    assert muster.story(id) == ["schedule", "retry", "schedule"]
    muster.check_accounts()


PICKLE = b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00]\x94."
GARBAGE: list[dict[str, Any]] = [
    {"body": b"\x00\xff\xfe raw"},
    {"body": b'{"neither": "task"', "content_type": "application/json"},
    {"body": b'[[], {}, {"more": 1}]', "content_type": "application/json"},
    {
        "body": b'[[], {"execution_id": "x"}, {}]',
        "content_type": "application/json",
        "headers": {"task": "muster.no_such_task", "id": "1"},
    },
    {
        "body": PICKLE,
        "content_type": "application/x-python-serialize",
        "content_encoding": "binary",
        "headers": {"task": "muster.run", "id": "2"},
    },
]


def test_garbage_in_every_queue_is_kept_and_stops_nobody(shared: Installation) -> None:
    names = shared.client.call("queue_names")
    worker_id = shared.worker("w1").id
    keeping = [names[which] for which in ("requests", "completed", "dead_letters")]
    keeping += [f"scenario.worker.{worker_id}.executions", f"scenario.worker.{worker_id}.cancel"]
    expected = Counter(garbage["body"] for garbage in GARBAGE for _ in keeping)

    for queue in [*keeping, names["maintenance"]]:
        for garbage in GARBAGE:
            shared.client.call("publish", queue=queue, **garbage)

    def kept() -> Counter[bytes]:
        """Identical ones share an entry."""
        letters: Counter[bytes] = Counter()
        for entry in shared.dlq_entries():
            letters[entry.raw_body] += entry.occurrences
        return letters

    shared.wait_for(lambda: kept().total() >= expected.total(), "not all was kept")
    assert kept() == expected
    assert {entry.dlq_reason for entry in shared.dlq_entries()} == {"message_invalid"}
    shared.wait_for(
        lambda: all(shared.client.call("queue_length", name=name) == 0 for name in names.values()),
        "some garbage stays in its queue",
    )
    id = shared.submit_note("after")
    assert shared.wait_for_end(id).status == "completed"
    shared.check_lives()
    shared.check_accounts()
