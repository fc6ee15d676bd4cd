"""Letters that are late, and letters that are no letters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tests.scenarios.installation import Installation

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


def _drained(muster: Installation) -> bool:
    queue = muster.client.call("queue_names")["dead_letters"]
    # nothing ready and, with the log line, nothing under way either
    return muster.client.call("queue_length", name=queue) == 0 and any(
        "dead letters drained" in service.log() for service in muster.services
    )


def test_dead_letter_of_a_running_or_completed_execution_changes_nothing(
    install: Callable[..., Any],
) -> None:
    muster = install()
    executor = muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    worker_id = muster.worker("w1").id
    done = muster.submit_note("done")
    before = muster.wait_for_end(done)
    running = muster.submit_note("running", seconds=4)
    muster.wait_for_start("running")

    for id in (done, running):
        _post_dead_letter(muster, id, attempt=1, worker_id=worker_id)
    muster.wait_for(lambda: _drained(muster), "the letters were not drained")

    assert muster.execution(running).status == "running"
    assert muster.wait_for_end(running).status == "completed"
    assert muster.execution(done) == before
    assert (muster.story(done), muster.story(running)) == (STORY, STORY)
    assert muster.dlq_entries() == []
    assert "stale=" in executor.log()
    muster.check_accounts()


def test_dead_letter_of_the_first_attempt_leaves_the_second_alone(
    install: Callable[..., Any],
) -> None:
    muster = install(worker_queue_ttl_ms=4_000)
    muster.start_executor()
    # two workers that are up as far as anybody can tell, and take nothing
    ids = [muster.client.call("enlist", name=name) for name in ("mute1", "mute2")]
    for worker_id in ids:
        muster.client.call("declare_worker_queues", id=worker_id)

    def keep_fresh() -> None:
        for worker_id in ids:
            muster.client.call("keep_fresh", id=worker_id, runtimes=["python"])

    def at_attempt(number: int) -> bool:
        keep_fresh()
        row = muster.execution(id)
        return bool(row.status == "scheduled" and row.attempt == number)

    keep_fresh()
    muster.ready()
    keep_fresh()
    # a limit of its own: without one it would go back, as its worker seems to live
    id = muster.submit_note("never", action="note_again", queue_ttl_ms=4_000)
    muster.wait_for(lambda: at_attempt(2), "there was no second attempt")
    before = muster.execution(id)
    [entry] = muster.dlq_entries()

    queue = muster.client.call("queue_names")["dead_letters"]
    _post_dead_letter(muster, id, attempt=1, worker_id=ids[0])
    muster.wait_for(
        lambda: muster.client.call("queue_length", name=queue) == 0, "the letter was not drained"
    )

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


def test_garbage_in_every_queue_is_kept_and_stops_nobody(install: Callable[..., Any]) -> None:
    muster = install()
    executor = muster.start_executor()
    worker = muster.start_worker("w1")
    muster.ready()
    names = muster.client.call("queue_names")
    worker_id = muster.worker("w1").id
    keeping = [names[which] for which in ("requests", "completed", "dead_letters")]
    keeping += [f"scenario.worker.{worker_id}.executions", f"scenario.worker.{worker_id}.cancel"]
    expected = Counter(garbage["body"] for garbage in GARBAGE for _ in keeping)

    for queue in [*keeping, names["maintenance"]]:
        for garbage in GARBAGE:
            muster.client.call("publish", queue=queue, **garbage)

    def kept() -> Counter[bytes]:
        """Identical ones share an entry."""
        letters: Counter[bytes] = Counter()
        for entry in muster.dlq_entries():
            letters[entry.raw_body] += entry.occurrences
        return letters

    muster.wait_for(lambda: kept().total() >= expected.total(), "not all was kept")
    assert kept() == expected
    assert {entry.dlq_reason for entry in muster.dlq_entries()} == {"message_invalid"}
    muster.wait_for(
        lambda: all(muster.client.call("queue_length", name=name) == 0 for name in names.values()),
        "some garbage stays in its queue",
    )
    id = muster.submit_note("after")
    assert muster.wait_for_end(id).status == "completed"
    assert (executor.process.poll(), worker.process.poll()) == (None, None)
    assert muster.worker("w1").incarnation == 1
    muster.check_accounts()
