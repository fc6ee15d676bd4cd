"""What becomes of executions that were dispatched and not claimed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestrator.core import executions, fleet, messages
from orchestrator.core.models import Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.rows import ended, events, reread

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
LATE = NOW + timedelta(seconds=31)


def expire(*rows: Execution) -> tuple[set[Any], set[Any]]:
    """The ids that ended, and those that went back."""
    found = Execution.objects.filter(pk__in=[row.pk for row in rows]).with_actions()
    expired = executions.expire(
        found, reason=Reason.QUEUE_TTL_EXPIRED, detail="late", failed_by="test", now=NOW
    )
    return expired.ended, expired.returned


# --- the wait has run out ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state",
    [{}, {"cordoned": True}, {"status": "draining"}, {"status": "inactive", "gone_at": None}],
)
def test_what_a_worker_that_beats_did_not_claim_goes_back_uncounted(state: dict[str, Any]) -> None:
    execution = make_execution(S.SCHEDULED, worker=make_worker(**state))
    assert expire(execution) == (set(), {execution.pk})
    assert ended(execution) == ("requested", "queue_ttl_expired")
    assert reread(execution).retry_count == 0
    assert events(execution) == ["give_back"]


@pytest.mark.parametrize(
    "state", [{"status": "inactive"}, {"heartbeat_at": NOW - timedelta(seconds=31)}]
)
def test_what_a_worker_that_is_gone_did_not_claim_ends(state: dict[str, Any]) -> None:
    execution = make_execution(S.SCHEDULED, worker=make_worker(**state))
    assert expire(execution) == ({execution.pk}, set())
    assert ended(execution) == ("failed", "queue_ttl_expired")


def test_what_another_worker_could_take_goes_back_though_its_own_is_gone() -> None:
    gone = make_worker("w1", status="inactive")
    make_worker("w2", runtimes=["shell"])
    stranded = make_execution(S.SCHEDULED, worker=gone)
    shell = make_action("core.shell", runtime="shell")
    movable = make_execution(S.SCHEDULED, worker=gone, action=shell)
    assert expire(stranded, movable) == ({stranded.pk}, {movable.pk})


@pytest.mark.parametrize("limit", ["queue_ttl_ms", "scheduled_timeout_seconds"])
def test_who_asks_for_a_limit_gets_it(limit: str) -> None:
    asked: dict[str, Any] = {limit: 5}
    execution = make_execution(S.SCHEDULED, worker=make_worker(), **asked)
    assert expire(execution) == ({execution.pk}, set())
    assert ended(execution) == ("failed", "queue_ttl_expired")


def test_what_is_pinned_goes_back_while_its_worker_beats_and_ends_if_that_is_gone() -> None:
    """Another worker is of no use to it."""
    beating, gone = make_worker("w1"), make_worker("w2", status="inactive")
    busy, dead = (
        make_execution(S.SCHEDULED, worker=worker, pinned_worker=worker)
        for worker in (beating, gone)
    )
    assert expire(busy, dead) == ({dead.pk}, {busy.pk})
    assert ended(dead) == ("failed", "queue_ttl_expired")


# --- it waits behind a full worker ---------------------------------------------------------------


def behind(worker: Worker, **values: Any) -> Execution:
    """Dispatched six seconds ago."""
    values.setdefault("scheduled_at", NOW - timedelta(seconds=6))
    return make_execution(S.SCHEDULED, worker=worker, **values)


def test_what_waits_behind_a_full_worker_goes_where_a_slot_is_free() -> None:
    full, free = make_worker("w1", capacity=1), make_worker("w2", capacity=1)
    make_execution(S.RUNNING, worker=full)
    low, high = behind(full), behind(full, priority=5)
    assert executions.release_waiting(now=NOW) == 1, "there is one free slot"
    assert ended(high) == ("requested", "moved")
    assert ended(low)[0] == "scheduled"
    schedule(high)
    row = reread(high)
    assert (row.worker_id, row.retry_count) == (free.pk, 0)
    assert executions.release_waiting(now=NOW) == 0, "that slot is taken"


@pytest.mark.parametrize(
    ("other", "waiting"),
    [
        pytest.param({"cordoned": True}, {}, id="the other is cordoned"),
        pytest.param({"runtimes": ["shell"]}, {}, id="the other lacks the runtime"),
        pytest.param({}, {"scheduled_at": NOW - timedelta(seconds=4)}, id="it came just now"),
    ],
)
def test_what_waits_behind_a_full_worker_stays(other: Any, waiting: Any) -> None:
    full = make_worker("w1", capacity=1)
    make_worker("w2", **other)
    make_execution(S.RUNNING, worker=full)
    execution = behind(full, **waiting)
    assert executions.release_waiting(now=NOW) == 0
    assert ended(execution)[0] == "scheduled"


def test_what_is_pinned_to_a_full_worker_waits_for_it() -> None:
    full = make_worker("w1", capacity=1)
    make_worker("w2")
    make_execution(S.RUNNING, worker=full)
    behind(full, pinned_worker=full)
    assert executions.release_waiting(now=NOW) == 0


def test_what_a_worker_with_a_free_slot_did_not_claim_when_told_twice_goes_elsewhere() -> None:
    deaf = make_worker("w1")
    make_worker("w2")
    told_once = behind(deaf)
    told_twice = behind(deaf, dispatched_again_at=NOW - timedelta(seconds=1))
    assert executions.release_waiting(now=NOW) == 1
    assert ended(told_once)[0] == "scheduled"
    assert ended(told_twice) == ("requested", "moved")


# --- its worker cannot be expected to claim it ---------------------------------------------------


def test_unclaimed_work_of_a_lost_worker_goes_to_another_at_once(
    sent: list[messages.Message],
) -> None:
    lost, other = make_worker("w1"), make_worker("w2", now=LATE)
    waiting = make_execution(S.SCHEDULED, worker=lost)
    fleet.mark_stale(now=LATE)
    assert executions.release_stranded(now=LATE) == 1
    assert [message.task for message in sent] == [messages.SCHEDULE]
    schedule(waiting, now=LATE)
    row = reread(waiting)
    assert (row.status, row.worker_id, row.attempt) == ("scheduled", other.pk, 2)
    assert events(waiting) == ["give_back", "schedule"]
    assert row.retry_count == 0, "nothing was tried, so it counts for no policy"
    late_message = [(waiting.pk, 1)]
    Worker.objects.filter(pk=lost.pk).update(status="active", gone_at=None)
    claimed = executions.claim(late_message, worker_id=lost.pk, incarnation=1, now=LATE, actor="w1")
    assert claimed == [], "the old message is fenced out"


@pytest.mark.parametrize(
    "state",
    [
        {"status": "draining"},
        {"status": "inactive", "gone_at": None, "failed_checks": {"disk": "2 % free"}},
    ],
)
def test_worker_that_cannot_be_expected_to_claim_loses_what_waits_for_it(
    state: dict[str, Any],
) -> None:
    unfit = make_worker("w1", **state)
    make_worker("w2")
    waiting = make_execution(S.SCHEDULED, worker=unfit)
    running = make_execution(S.RUNNING, worker=unfit)
    assert executions.release_stranded(now=NOW) == 1
    assert executions.settle_lost(now=NOW) == 0, "it is up, and what it runs goes on"
    assert ended(waiting)[0] == "requested"
    assert ended(running)[0] == "running"


def test_cordoned_worker_keeps_what_it_was_given_before() -> None:
    make_worker("w2")
    waiting = make_execution(S.SCHEDULED, worker=make_worker("w1", cordoned=True))
    assert executions.release_stranded(now=NOW) == 0
    assert ended(waiting)[0] == "scheduled"


def test_unclaimed_work_stays_where_it_is_if_nobody_else_could_take_it() -> None:
    lost = make_worker("w1", labels={"zone": "a"})
    make_worker("w2", now=LATE, labels={"zone": "b"})
    here = make_action("core.here", worker_selector={"zone": "a"})
    waiting = make_execution(S.SCHEDULED, worker=lost, action=here)
    fleet.mark_stale(now=LATE)
    assert executions.release_stranded(now=LATE) == 0
    assert ended(waiting)[0] == "scheduled", "its worker may come back before its TTL runs out"


def test_work_that_is_pinned_to_a_lost_worker_waits_for_it() -> None:
    lost = make_worker("w1")
    make_worker("w2", now=LATE)
    waiting = make_execution(S.SCHEDULED, worker=lost, pinned_worker=lost)
    fleet.mark_stale(now=LATE)
    assert executions.release_stranded(now=LATE) == 0
    assert ended(waiting)[0] == "scheduled"


@pytest.mark.parametrize(("check", "returned"), [("broker", True), ("disk", False)])
def test_who_is_only_not_reached_by_the_broker_could_take_it(check: str, returned: bool) -> None:
    """Its own worker is gone, and the broker is away: another has nothing wrong with it."""
    gone = make_worker("w1", gone_at=NOW, status="inactive")
    make_worker("w2", status="inactive", gone_at=None, failed_checks={check: "why"})
    execution = make_execution(S.SCHEDULED, worker=gone, start_by=NOW)
    executions.sweep(now=NOW)
    assert reread(execution).is_terminal is not returned
