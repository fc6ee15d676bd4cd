"""The life of executions on PostgreSQL, against a model of it that fits on two pages.

Any order of requests, schedules, claims, ends, cancels, sweeps, losses and letters, by writers
with fresh and with stale views: after each step every row must be where the model says, and the
history must be one that the checker of the storms accepts.

`CHAOS_NIGHTLY=1` makes it 5,000 examples of 50 steps and 1,000 races.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection, connections
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.core import dead_letters, executions, fleet, messages, publisher, relay
from orchestrator.core.dead_letters import Letter
from orchestrator.core.models import Execution, ExecutionEvent, Worker
from orchestrator.core.models.execution_sets import DEADLINE_GRACE
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move, TransitionConflict
from tests import databases
from tests.chaos import checker
from tests.chaos.facts import TERMINAL, Event, Evidence, Line, Row
from tests.factories import NOW, make_action, make_execution, make_worker

NIGHTLY = bool(os.environ.get("CHAOS_NIGHTLY"))
EXAMPLES, STEPS = (5_000, 50) if NIGHTLY else (40, 30)
RACES = 1_000 if NIGHTLY else 200
BATCH, ROUNDS = 250, 12

TIMEOUT_SECONDS = 60
TRIES = 3
STALENESS = timedelta(seconds=30)
"""Three heartbeats of ten seconds: Muster's own settings."""
WORKERS = 3

ENDS = {
    Reason.SUCCEEDED: ("completed", "completed"),
    Reason.ACTION_FAILED: ("failed", "cancelled"),
    Reason.RUN_TIMEOUT: ("timeout", "cancelled"),
    Reason.PROCESS_LOST: ("abandoned", "abandoned"),
}
"""How a worker's word ends what runs, and what is being cancelled."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7_200 if NIGHTLY else 300)]


@dataclass
class Expected:
    """An execution as it should be."""

    id: UUID
    idempotent: bool
    deadline_at: datetime
    status: str = "requested"
    attempt: int = 0
    retry_count: int = 0
    worker_id: int | None = None
    incarnation: int = 0
    start_by: datetime = NOW
    run_deadline_at: datetime = NOW

    def end(self, status: str, now: datetime, *, safe_to_repeat: bool) -> None:
        """An attempt is over: `status`, or once more where that is allowed."""
        repeats = safe_to_repeat and self.retry_count + 1 < TRIES and self.deadline_at > now
        if repeats and self.idempotent:
            self.status, self.retry_count = "requested", self.retry_count + 1
        else:
            self.status = status


@dataclass
class Life:
    """A worker as it should be."""

    id: int
    incarnation: int = 1
    is_active: bool = True
    beaten_at: datetime = NOW


@dataclass(frozen=True)
class View:
    """What some writer once saw of an execution."""

    status: str
    attempt: int
    model: Expected


@dataclass
class World:
    """What the model knows."""

    now: datetime = NOW
    executions: list[Expected] = field(default_factory=list)
    workers: list[Life] = field(default_factory=list)
    claims: list[tuple[Expected, Execution]] = field(default_factory=list)
    """What workers hold: as claimed, and never reloaded."""
    views: list[View] = field(default_factory=list)
    deferrals: list[Line] = field(default_factory=list)
    """What the actions that said "not now" would have written."""


INDEX = st.integers(0, 10**6)


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize()
    def begin(self) -> None:
        _empty()
        policy = {"max_attempts": TRIES, "backoff": "none"}
        make_action("model.once", timeout_seconds=TIMEOUT_SECONDS)
        make_action(
            "model.again", timeout_seconds=TIMEOUT_SECONDS, idempotent=True, retry_policy=policy
        )
        for number in range(WORKERS):
            worker = make_worker(f"w{number}", capacity=1_000)
            self.world.workers.append(Life(worker.pk))

    # ---- what happens ----

    @rule(idempotent=st.booleans(), deadline_seconds=st.integers(1, 900))
    def request(self, idempotent: bool, deadline_seconds: int) -> None:
        new = executions.NewExecution(
            action_ref="model.again" if idempotent else "model.once",
            deadline_seconds=deadline_seconds,
        )
        row = executions.request(new, requested_by="model", now=self.world.now)
        deadline_at = self.world.now + timedelta(seconds=deadline_seconds)
        self.world.executions.append(Expected(row.pk, idempotent, deadline_at))

    @rule(seconds=st.sampled_from([0.1, 1, 5, 11, 30, 71, 320]))
    def wait(self, seconds: float) -> None:
        self.world.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.world.executions)
    @rule(which=INDEX, redelivered=st.booleans())
    def schedule(self, which: int, redelivered: bool) -> None:
        one, now = self._one(which), self.world.now
        for life in self.world.workers:
            self._beat(life)
        executions.schedule(
            [one.id], placement=fleet.Placement(), now=now, actor="model", redelivered=redelivered
        )
        if one.status == "requested" and one.deadline_at > now:
            one.status, one.attempt = "scheduled", one.attempt + 1
            one.start_by = min(now + timedelta(seconds=300 + 10), one.deadline_at)
            one.worker_id = Execution.objects.values_list("worker_id", flat=True).get(pk=one.id)
            [worker] = [life for life in self.world.workers if life.id == one.worker_id]
            assert worker.is_active

    @precondition(lambda self: self.world.executions)
    @rule(which=INDEX, back=st.integers(0, 1), wrong_worker=st.integers(0, 3), old=st.booleans())
    def claim(self, which: int, back: int, wrong_worker: int, old: bool) -> None:
        """By the right worker and attempt, or by a message or a life that is out of date."""
        one, now = self._one(which), self.world.now
        attempt = one.attempt - back
        by = [life for life in self.world.workers if life.id == one.worker_id]
        worker = self.world.workers[wrong_worker - 1] if wrong_worker or not by else by[0]
        incarnation = worker.incarnation - old
        claimed = executions.claim(
            [(one.id, attempt)],
            worker_id=worker.id,
            incarnation=incarnation,
            now=now,
            actor="model",
        )
        may = (
            one.status == "scheduled"
            and back == 0
            and not old
            and worker.id == one.worker_id
            and worker.is_active
            and now < one.start_by
            and now < one.deadline_at
        )
        assert [execution.pk for execution in claimed] == ([one.id] if may else [])
        if may:
            limit = min(timedelta(seconds=TIMEOUT_SECONDS), one.deadline_at - now)
            one.status, one.incarnation = "running", worker.incarnation
            one.run_deadline_at = now + limit + timedelta(seconds=10)
            self.world.claims.append((one, claimed[0]))

    @precondition(lambda self: self.world.claims)
    @rule(which=INDEX, reason=st.sampled_from(sorted(ENDS)), twice=st.booleans())
    def finish(self, which: int, reason: Reason, twice: bool) -> None:
        """In time, too late, or a second time: whoever claimed it says how it ended."""
        one, claimed = self.world.claims[which % len(self.world.claims)]
        end = executions.Ended(claimed, reason, {"by": "model"})
        counted = executions.finish([end], now=self.world.now, actor="model")
        counts = one.status in ("running", "canceling") and one.attempt == claimed.attempt
        assert counted == ({claimed.key} if counts else set())
        if counts and one.status == "canceling":
            one.status = ENDS[reason][1]
        elif counts:
            lost = reason is Reason.PROCESS_LOST
            one.end(ENDS[reason][0], self.world.now, safe_to_repeat=lost)
        if twice:
            assert executions.finish([end], now=self.world.now, actor="model") == set()

    @precondition(lambda self: self.world.claims)
    @rule(which=INDEX, twice=st.booleans())
    def defer(self, which: int, twice: bool) -> None:
        """Whoever claimed it says "not now", in time, too late, or a second time. Pauses have tests
        of their own: here the worker may have it again at once."""
        one, claimed = self.world.claims[which % len(self.world.claims)]
        now = self.world.now
        said = Line("defer", str(one.id), claimed.attempt, pid=1, at=now.timestamp())
        self.world.deferrals.append(said)
        end = executions.Ended(claimed, Reason.TASK_REJECTED, {executions.RETRY_AFTER: 0})
        counted = executions.finish([end], now=now, actor="model")
        counts = one.status in ("running", "canceling") and one.attempt == claimed.attempt
        assert counted == ({claimed.key} if counts else set())
        if counts and one.status == "canceling":
            one.status = "cancelled"
        elif counts:
            one.status = "requested" if one.deadline_at > now else "failed"
        if twice:
            assert executions.finish([end], now=now, actor="model") == set()
        Worker.objects.update(queue_pauses={})

    @precondition(lambda self: self.world.executions)
    @rule(which=INDEX)
    def cancel(self, which: int) -> None:
        one, now = self._one(which), self.world.now
        try:
            executions.cancel(execution_id=one.id, actor="model", now=now)
        except executions.AlreadyOver:
            assert one.status in TERMINAL
            return
        if one.status == "running":
            one.status = "canceling"
            grace = timedelta(seconds=10 + 10)
            one.run_deadline_at = min(one.run_deadline_at, now + grace)
        elif one.status != "canceling":
            assert one.status not in TERMINAL
            one.status = "cancelled"

    @rule()
    def sweep(self) -> None:
        now = self.world.now
        out_of_grace = now - DEADLINE_GRACE
        executions.sweep(now=now)
        for one in self.world.executions:
            late = one.run_deadline_at <= now or one.deadline_at <= out_of_grace
            if one.status == "canceling" and late:
                one.status = "cancelled"
            elif one.status == "running" and late:
                one.end("timeout", now, safe_to_repeat=True)
            elif one.status in ("requested", "scheduled") and one.deadline_at <= now:
                one.status = "failed"
            elif one.status == "scheduled" and one.start_by <= now:
                self._expire(one)

    @precondition(lambda self: sum(life.is_active for life in self.world.workers) > 1)
    @rule(which=INDEX)
    def lose_worker(self, which: int) -> None:
        """Its heartbeat stops, the others beat on, and the check looks."""
        active = [life for life in self.world.workers if life.is_active]
        lost = active[which % len(active)]
        self.world.now += timedelta(seconds=31)
        for life in active:
            if life is not lost:
                self._beat(life)
        found = fleet.mark_stale(now=self.world.now)
        assert lost.id in [worker.pk for worker in found]
        lost.is_active = False
        self._settle()

    @rule(which=INDEX)
    def register(self, which: int) -> None:
        """A new life, whether the last one was known to be over or not."""
        life = self.world.workers[which % WORKERS]
        worker = fleet.register(
            worker_id=life.id,
            capacity=1_000,
            runtimes=["python"],
            host="here",
            pid=1,
            version="1",
            now=self.world.now,
        )
        life.is_active, life.incarnation = True, life.incarnation + 1
        life.beaten_at = self.world.now
        assert worker.incarnation == life.incarnation
        self._settle()

    def _settle(self) -> None:
        executions.settle_lost(now=self.world.now)
        lives = {life.id: life for life in self.world.workers}
        for one in self.world.executions:
            if one.status in ("running", "canceling"):
                assert one.worker_id is not None
                life = lives[one.worker_id]
                if life.is_active and life.incarnation == one.incarnation:
                    continue
                is_running = one.status == "running"
                one.end("abandoned", self.world.now, safe_to_repeat=is_running)

    @rule(which=INDEX)
    def give_back(self, which: int) -> None:
        life = self.world.workers[which % WORKERS]
        executions.give_back(worker_id=life.id, now=self.world.now, actor="model")
        for one in self.world.executions:
            if one.status == "scheduled" and one.worker_id == life.id:
                one.status = "requested"

    @precondition(lambda self: self.world.executions)
    @rule(which=INDEX, back=st.integers(0, 1))
    def dead_letter(self, which: int, back: int) -> None:
        one, now = self._one(which), self.world.now
        attempt = one.attempt - back
        letter = Letter(b"{}", {}, [{"reason": "expired"}], messages.RUN, [(one.id, attempt)], "")
        dead_letters.settle([letter], now=now)
        if one.status == "scheduled" and back == 0:
            self._expire(one)

    def _expire(self, one: Expected) -> None:
        """Nobody claimed it: that ends it only where no worker could be expected to."""
        oldest = self.world.now - STALENESS
        if any(life.is_active and life.beaten_at >= oldest for life in self.world.workers):
            one.status = "requested"
        else:
            one.end("failed", self.world.now, safe_to_repeat=True)

    def _beat(self, life: Life) -> None:
        fleet.beat(worker_id=life.id, incarnation=life.incarnation, now=self.world.now)
        if life.is_active:
            life.beaten_at = self.world.now

    @precondition(lambda self: self.world.executions)
    @rule(which=INDEX)
    def look(self, which: int) -> None:
        """A writer reads a row, and will write later what follows from it."""
        one = self._one(which)
        self.world.views.append(View(one.status, one.attempt, one))

    @precondition(lambda self: self.world.views)
    @rule(which=INDEX, event=st.sampled_from(["complete", "fail", "abandon"]))
    def write_late(self, which: int, event: str) -> None:
        view = self.world.views[which % len(self.world.views)]
        one = view.model
        move = Move(one.id, view.status, view.attempt)
        try:
            moved = Execution.objects.transition_many(
                event, [move], now=self.world.now, actor="late", reason=Reason.ACTION_FAILED
            )
        except TransitionConflict:
            assert view.status not in ("running", "canceling")
            return
        counts = (one.status, one.attempt) == (view.status, view.attempt)
        assert moved == ({one.id} if counts else set())
        if counts:
            one.status = {"complete": "completed", "fail": "failed", "abandon": "abandoned"}[event]

    # ---- what holds ----

    @invariant()
    def rows_are_as_expected(self) -> None:
        found = {
            row.pk: (row.status, row.attempt, row.retry_count)
            for row in Execution.objects.only("status", "attempt", "retry_count")
        }
        wanted = {
            one.id: (one.status, one.attempt, one.retry_count) for one in self.world.executions
        }
        assert found == wanted

    def teardown(self) -> None:
        assert checker.check(_evidence(self.world.deferrals), checker.OF_HISTORY) == [], (
            "the history is none that may be"
        )

    def _one(self, which: int) -> Expected:
        return self.world.executions[which % len(self.world.executions)]


def _evidence(lines: Sequence[Line] = ()) -> Evidence:
    """The rows and histories as the checker of the storms takes them; what is open is left out."""
    rows = [
        Row(
            str(row.pk),
            row.action_ref,
            True,
            row.status,
            row.reason,
            row.attempt,
            row.deadline_at.timestamp(),
            # the model waits as long as it likes before it sweeps
            row.deadline_at.timestamp(),
        )
        for row in Execution.objects.exclude(ended_at=None).exclude(status="completed")
    ]
    known = {row.execution for row in rows}
    events = [
        Event(
            str(event.execution_id),
            event.event,
            event.from_status,
            event.to_status,
            event.attempt,
            event.actor,
            event.reason,
            event.at.timestamp(),
        )
        for event in ExecutionEvent.objects.order_by("pk")
        if str(event.execution_id) in known
    ]
    return Evidence(rows=rows, events=events, lines=list(lines))


def _empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            # what has happened cannot be deleted otherwise
            "SET session_replication_role = replica; "
            "DELETE FROM orchestrator_executionevent; DELETE FROM orchestrator_dlqentryevent; "
            "DELETE FROM orchestrator_dlqentry; "
            "DELETE FROM orchestrator_execution; DELETE FROM orchestrator_workerevent; "
            "DELETE FROM orchestrator_worker; RESET session_replication_role"
        )


@pytest.fixture
def postgresql(postgresql_lender: databases.Lender, django_db_blocker: Any) -> Iterator[None]:
    with (
        django_db_blocker.unblock(),
        postgresql_lender() as config,
        databases.as_default(config),
        patch.object(publisher, "send", lambda messages: []),
        patch.object(relay, "send_soon", lambda messages: None),
    ):
        yield


def test_executions_live_as_the_model_says(postgresql: None) -> None:
    assert settings.MUSTER.worker_queue_ttl_ms == 300_000, "the model reckons with the defaults"
    run_state_machine_as_test(
        Lives,
        settings=hypothesis_settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_of_five_racing_writers_one_wins_every_time(postgresql: None) -> None:
    action, worker = make_action(), make_worker()
    events = ["complete", "fail", "time_out", "abandon", "request_cancel"]
    rows = [make_execution("running", action=action, worker=worker) for _ in range(RACES)]
    wins: dict[UUID, list[str]] = {row.pk: [] for row in rows}
    start = threading.Barrier(len(events))

    def write(event: str) -> Callable[[], None]:
        reason = None if event == "request_cancel" else Reason.ACTION_FAILED

        def run() -> None:
            try:
                for row in rows:
                    move = Move(row.pk, "running", 1)
                    start.wait(30)
                    if Execution.objects.transition_many(
                        event, [move], now=NOW, actor=event, reason=reason
                    ):
                        wins[row.pk].append(event)
            finally:
                connections.close_all()

        return run

    writers = [threading.Thread(target=write(event)) for event in events]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert {len(won) for won in wins.values()} == {1}
    for row in Execution.objects.all():
        [entry] = ExecutionEvent.objects.of(row.pk)
        assert [entry.event] == wins[row.pk]
        assert row.status == entry.to_status


def test_batches_of_the_same_rows_never_deadlock(postgresql: None) -> None:
    """Each locks its rows in the order of their ids, in whatever order it was given them."""
    action, worker = make_action(), make_worker()
    writers = ["complete", "fail", "abandon"]
    rounds = [
        [make_execution("running", action=action, worker=worker).pk for _ in range(BATCH)]
        for _ in range(ROUNDS)
    ]
    start = threading.Barrier(len(writers))
    moved: list[set[UUID]] = []
    failures: list[Exception] = []

    def write(event: str) -> None:
        rng = random.Random(event)
        try:
            with connections["default"].cursor() as cursor:
                # on a busy machine to wait is no failure: a deadlock is, and PostgreSQL finds it
                cursor.execute("SET lock_timeout = 0")
            for ids in rounds:
                moves = [Move(id, "running", 1) for id in rng.sample(ids, k=BATCH)]
                start.wait(120)
                moved.append(
                    Execution.objects.transition_many(
                        event,
                        moves,
                        now=NOW,
                        actor=event,
                        reason=Reason.ACTION_FAILED,
                        wait_for_locks=True,  # as for steps: who skips what is held never waits
                    )
                )
        except Exception as error:  # noqa: BLE001 - told by the test itself
            failures.append(error)
            start.abort()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=write, args=(event,)) for event in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert sum(map(len, moved)) == BATCH * ROUNDS
