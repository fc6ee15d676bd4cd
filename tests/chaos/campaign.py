"""One failpoint after another fails in the services of a storm."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import httpx
import psycopg

from tests.chaos import injection, lanes, load
from tests.chaos.facts import Fault
from tests.chaos.failpoints import Failpoint
from tests.chaos.keeper import SLOTS
from tests.scenarios.installation import Installation

if TYPE_CHECKING:
    from tests.chaos.storm import Storm

AT_ONCE = 5
"""Armed at a time: more, and nothing would ever run in peace."""

AGAIN_SECONDS = 4.0
"""What was provoked and did not come is provoked again."""

SELDOM_SECONDS = {"step the clock": 15.0, "freeze worker": 15.0}
"""What nobody could recover from in that time."""

LONGEST_SECONDS = 120.0
"""For what is provoked seldom, as many times longer."""

RUNNING = ("enqueued", "in_progress")
RUNNING_WITHIN_SECONDS = 5.0

CROWD = 30
TICKING_SECONDS = 5.0
CANCEL_SHARE = 0.3

BEATS_AHEAD: LiteralString = (
    "UPDATE orchestrator_worker SET heartbeat_at = now() + interval '10 s' "
    "WHERE name IN ('deaf', 'idle')"
)
"""Nobody renews it, and a busy machine is slow to look at it."""

INJECTED = Path(__file__).parent / "injected"
PARTS = ("armed", "fired")


def environment(muster: Installation) -> dict[str, str]:
    """Variables with which the services of an installation can be made to fail."""
    for part in PARTS:
        (_directory(muster) / part).mkdir(parents=True)
    return {
        injection.DIRECTORY: str(_directory(muster)),
        "PYTHONPATH": f"{INJECTED}:{injection.REPOSITORY}",
    }


def run(storm: Storm, points: Sequence[Failpoint], *, seed: int) -> list[Failpoint]:
    """Have each of these fail once; returns those that were never reached.

    What is not reached while others fail, which may end the pass that would have come to it, is
    tried once more when all others are through.
    """
    if not points:
        return []
    rng = random.Random(seed)
    usual, storm.client.cancel_share = storm.client.cancel_share, CANCEL_SHARE
    provoker = Provoker(storm, seed=seed)
    provoker.provoke("make ghost")
    unreached = _round(storm, points, provoker, rng)
    if unreached:
        unreached = _round(storm, unreached, provoker, rng)
    storm.client.cancel_share = usual
    return unreached


def _round(
    storm: Storm, points: Sequence[Failpoint], provoker: Provoker, rng: random.Random
) -> list[Failpoint]:
    """Arm one after the other; returns those that nobody came to in time."""
    unreached: list[Failpoint] = []
    armed: dict[Failpoint, float] = {}
    provoked: dict[str, float] = {}
    waiting = _in_groups(points, rng)
    while waiting or armed:
        if storm.client.failure is not None:
            raise storm.client.failure
        for point in [point for point in armed if has_fired(storm.muster, point)]:
            _note(storm, point, armed.pop(point), len(waiting) + len(armed))
        if not _all_executors_work(storm):  # the other one would be killed now
            for point in [point for point in armed if point.form == injection.KILL]:
                disarm(storm.muster, point)
                del armed[point]
                waiting.append(point)
        while len(armed) < AT_ONCE and (following := _next(storm, waiting, armed)):
            waiting.remove(following)
            arm(storm.muster, following)
            armed[following] = time.monotonic()
        for point in [p for p, at in armed.items() if time.monotonic() - at > _longest(p)]:
            disarm(storm.muster, point)
            del armed[point]
            unreached.append(point)
        for what in {point.provoked_by for point in armed} - {""}:
            pause_seconds = SELDOM_SECONDS.get(what, AGAIN_SECONDS)
            if time.monotonic() - provoked.get(what, float("-inf")) >= pause_seconds:
                provoker.provoke(what)
                provoked[what] = time.monotonic()
        time.sleep(0.05)
    return unreached


def _next(
    storm: Storm, waiting: Sequence[Failpoint], armed: Iterable[Failpoint]
) -> Failpoint | None:
    """The next to be armed. One kill at a time, and while all services are up: a service that is
    killed whenever it has started is not there, and nothing promises anything without it."""
    may_kill = not any(point.form == injection.KILL for point in armed)
    may_kill = may_kill and storm.keeper.all_are_up() and _all_executors_work(storm)
    for point in reversed(waiting):
        if point.form != injection.KILL or may_kill:
            return point
    return None


def _all_executors_work(storm: Storm) -> bool:
    return len(storm.breaker.executors_at_work()) == len(storm.keeper.executors)


def _longest(point: Failpoint) -> float:
    """What fails in the same pass keeps others from being reached: each is tried often enough."""
    return LONGEST_SECONDS * SELDOM_SECONDS.get(point.provoked_by, AGAIN_SECONDS) / AGAIN_SECONDS


def _in_groups(points: Sequence[Failpoint], rng: random.Random) -> list[Failpoint]:
    """In random order, but together what is provoked together."""
    ways = {point.provoked_by: rng.random() for point in points}
    return sorted(points, key=lambda point: (ways[point.provoked_by], rng.random()))


def arm(muster: Installation, point: Failpoint) -> None:
    (_directory(muster) / "armed" / str(point)).touch()


def disarm(muster: Installation, point: Failpoint) -> None:
    (_directory(muster) / "armed" / str(point)).unlink(missing_ok=True)


def has_fired(muster: Installation, point: Failpoint) -> bool:
    """Whether it did; who fires writes down who it was."""
    fired = _directory(muster) / "fired" / str(point)
    return fired.exists() and fired.stat().st_size > 0


def _note(storm: Storm, point: Failpoint, armed_at: float, left: int) -> None:
    fired = _directory(storm.muster) / "fired" / str(point)
    at, pids = fired.stat().st_ctime, map(int, fired.read_text().split())
    known = storm.keeper.worker_of
    workers = frozenset(known[pid] for pid in pids if pid in known)
    storm.breaker.faults.append(Fault(f"failpoint, {point.form}", at, at, str(point), workers))
    storm.tell(f"{point}, after {time.monotonic() - armed_at:.1f} s, {left} to come")


def _directory(muster: Installation) -> Path:
    return muster.directory / "failpoints"


class Provoker:
    """Makes happen what a load alone does not; each method is one way."""

    def __init__(self, storm: Storm, *, seed: int) -> None:
        self.storm = storm
        self.rng = random.Random(seed)

    def provoke(self, what: str) -> None:
        provoke = getattr(self, what.replace(" ", "_"))
        try:
            provoke()
        except Exception as error:  # noqa: BLE001 - what it needs may be down: later, then
            self.storm.tell(f"not now: {what}, {error!r:.100}")

    def make_ghost(self) -> None:
        """A worker that has a queue and never comes: the way to many dead letters."""
        self.storm.make_ghost()

    def freeze_worker(self) -> None:
        """Until it is declared lost: one that is killed is back before that."""
        self.storm.breaker.cause("freeze worker")

    def step_the_clock(self) -> None:
        """Forward and back in turns, while something runs that is then overdue by it."""
        self.fill_the_fleet(seconds=4.0)
        is_ahead = self.storm.database.offset_at(time.time()) > 0
        if is_ahead:  # and while a step waits for a retry, at a time that will be far away
            task = self._request_task("patient")
            with self.storm.client.http() as http:
                self._steps(http, task, "waiting_for_retry")
        self.storm.breaker.cause("step clock back" if is_ahead else "step clock forward")

    def garbage_on_every_queue(self) -> None:
        self.storm.breaker.cause("garbage on every queue")

    def delete_worker_queue(self) -> None:
        self.storm.breaker.cause("delete worker queue")

    def investigate(self) -> None:
        """Somebody opens an entry about an execution, and closes it with a note."""
        [row] = self.storm.database.select(
            "SELECT id FROM orchestrator_execution ORDER BY random() LIMIT 1"
        )
        with self.storm.client.http() as http:
            told = {"execution_id": str(uuid.UUID(str(row["id"]))), "detail": "odd"}
            opened = http.post("/dlq", json=told)
            if opened.status_code == 201:
                id = opened.json()["dlq_entry_uuid"]
                closing = {"note": "seen", "resolution_status": "cancelled"}
                http.patch(f"/dlq/entry/{id}", json=closing)

    def cancel_what_runs(self) -> None:
        parameters = {"trace": str(self.storm.trace.path), "seconds": 4}
        [id] = self.storm.muster.submit_many([{"parameters": parameters}], "chaos.again")
        self.storm.muster.wait_for_status(id, "running", within_seconds=5)
        with self.storm.client.http() as http:
            http.post(f"/executions/{id}/cancel")
        self.storm.cancels += 1

    def stop_a_worker(self) -> None:
        """In good order, with work in hand: it drains, gives back and leaves."""
        self.fill_the_fleet()
        self.storm.breaker.cause("stop worker")

    # ---- automation ----

    def report_events(self) -> None:
        """Orders that a rule answers, some of them not; a timer; a rule that waits for statuses."""
        self.storm.muster.client.call("install_rules", news=self._rules(), pack="chaos")
        first = self.rng.randrange(10**9)
        events = [
            {"trigger": {"type": "chaos.order"}, "payload": {"number": number}, "key": f"{number}"}
            for number in range(first, first + 10)
        ]
        with self.storm.client.http() as http:
            http.post("/events/bulk", json={"events": events}).raise_for_status()

    def _rules(self) -> list[dict[str, Any]]:
        parameters = {"trace": str(self.storm.trace.path), "seconds": 0.1}
        said = {"action_ref": "chaos.again", "parameters": parameters}
        # by the database's clock, which may have been set: a timer that has ended does nothing
        ahead = timedelta(seconds=self.storm.database.offset_at(time.time()))
        now = datetime.now(UTC) + ahead
        # it ends by itself: nothing is to begin when the storm is over
        span = {
            "start_at": now.isoformat(),
            "end_at": (now + timedelta(seconds=TICKING_SECONDS)).isoformat(),
        }
        seldom = {"suppress": {"by": "{{ rule.ref }}", "seconds": 2}}
        return [
            {
                "ref": "chaos.order",
                "options": {"suppress": {"by": "{{ trigger.number // 3 }}", "seconds": 60}},
                **said,
            },
            # two timers, due at the same moments: a single event is recorded by another statement
            *(
                {
                    "ref": ref,
                    "trigger_type": "core.interval",
                    "trigger_parameters": {"every_seconds": seconds, **span},
                    "options": seldom,
                    **said,
                }
                for ref, seconds in (("chaos.tick", 1), ("chaos.tock", 2))
            ),
            {
                "ref": "chaos.started",
                "trigger_type": "core.execution",
                "trigger_parameters": {"actions": ["chaos.fails"], "statuses": ["running"]},
                "options": seldom,
                **said,
            },
        ]

    # ---- tasks ----

    def request_tasks(self) -> None:
        """Of every shape: what waits for retries, for others, and for many at once."""
        for name in load.TEMPLATES:
            self._request_task(name)

    def request_a_slow_task(self) -> None:
        """Whose steps are seen while they run."""
        self._request_task("chain", seconds=1.5)

    def request_a_stale_task(self) -> None:
        self._request_task("stale")

    def cancel_a_task(self) -> None:
        """In the middle of its steps."""
        task = self._request_task("chain", seconds=0.5)
        with self.storm.client.http() as http:
            if self._steps(http, task, *RUNNING):
                http.delete(f"/tasks/{task}")

    def repair_a_step(self) -> None:
        """One that runs: its execution is cancelled, and whatever it returns does not count."""
        task = self._request_task("chain", seconds=1.0)
        with self.storm.client.http() as http:
            for step in self._steps(http, task, *RUNNING):
                told = {
                    "action_type": "reset_for_retry",
                    "reason": "to see it twice",
                    "force": True,
                }
                http.patch(f"/tasks/{task}/workflow_steps/{step}", json=told)
        self.storm.cancels += 1

    def _request_task(self, name: str, **context: Any) -> str:
        context["trace"] = str(self.storm.trace.path)
        new = {"namespace": "chaos", "name": name, "version": "1.0.0", "context": context}
        with self.storm.client.http() as http:
            answer = http.post("/tasks", json=new)
        id: str = answer.json()["task_uuid"]
        self.storm.client.tasks.append(id)
        return id

    def _steps(self, http: httpx.Client, task: str, *states: str) -> list[str]:
        """Steps of this task that are in one of these states, as soon as there are some."""
        until = time.monotonic() + RUNNING_WITHIN_SECONDS
        while time.monotonic() < until:
            answer = http.get(f"/tasks/{task}/workflow_steps", params={"state": states})
            if found := [item["step_uuid"] for item in answer.json()["items"]]:
                return found
            time.sleep(0.1)
        return []

    # ---- workers ----

    def ask_for_what_nobody_offers(self) -> None:
        """A patient action for a worker that is up and has another runtime."""
        client = self.storm.muster.client
        deaf = self.storm.worker_without_process("deaf")
        client.call("keep_fresh", id=deaf, runtimes=["none"])
        self._write(BEATS_AHEAD)
        parameters = {"trace": str(self.storm.trace.path), "seconds": 0.1}
        asked = {"parameters": parameters, "worker_id": deaf, "deadline_seconds": 5}
        self.storm.muster.submit_many([asked], "chaos.again")

    def fill_the_fleet(self, *, seconds: float = 0.3) -> None:
        """More than all workers may hold, all of it patient; as much work for longer actions."""
        parameters = {"trace": str(self.storm.trace.path), "seconds": seconds}
        number = max(SLOTS * len(self.storm.keeper.workers), round(CROWD * 0.3 / seconds))
        self.storm.muster.submit_many([{"parameters": parameters}] * number, "chaos.again")

    def fill_a_queue(self) -> None:
        """More than its limit lets start, so that it waits in the backlog."""
        parameters = {"trace": str(self.storm.trace.path), "seconds": 0.1}
        asked = {"parameters": parameters, "queue": lanes.LIMITED}
        self.storm.muster.submit_many([asked] * (4 * lanes.MAX_RUNNING), "chaos.again")

    def delete_output_queue(self) -> None:
        self.storm.breaker.cause("delete output queue")

    def stop_an_executor(self) -> None:
        """In good order: it takes in what it has, and leaves."""
        breaker = self.storm.breaker
        names = breaker.executors_at_work()
        if len(names) > 1 and (service := self.storm.keeper.running(names[0])) is not None:
            self.storm.keeper.terminate(service)

    def submit_quickly(self) -> None:
        """More a second than a process places by itself, half of it with keys."""

        def submit() -> None:
            with self.storm.client.http() as http:
                for number in range(50):
                    key = {"idempotency_key": uuid.uuid4().hex} if number % 2 else {}
                    parameters = {"trace": str(self.storm.trace.path), "seconds": 0.01}
                    new = {"action_ref": "chaos.again", "parameters": parameters}
                    http.post("/executions", json=new | key)

        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(submit) for _ in range(4)]:
                each.result()

    def leave_a_dispatch_unclaimed(self) -> None:
        """On a worker that beats and takes nothing; nobody else's work is sent to it."""
        client = self.storm.muster.client
        idle = self.storm.worker_without_process("idle")
        self._write("UPDATE orchestrator_worker SET cordoned = true WHERE name = 'idle'")
        client.call("keep_fresh", id=idle, runtimes=["python"])
        self._write(BEATS_AHEAD)
        parameters = {"trace": str(self.storm.trace.path), "seconds": 0.1}
        asked = {"parameters": parameters, "worker_id": idle, "deadline_seconds": 6}
        self.storm.muster.submit_many([asked], "chaos.again")
        for _ in range(10):  # as if it had been there for long, for the next tick
            time.sleep(0.1)
            self._write(
                "UPDATE orchestrator_execution SET scheduled_at = now() - interval '1 minute' "
                "WHERE status = 'scheduled' AND worker_id IN "
                "(SELECT id FROM orchestrator_worker WHERE name = 'idle')"
            )

    def forget_the_ticks(self) -> None:
        self._write("DELETE FROM orchestrator_tick")

    def _write(self, statement: LiteralString) -> None:
        with psycopg.connect(self.storm.database.url, autocommit=True) as connection:
            connection.execute(statement)

    def fail_a_dispatch(self) -> None:
        self._arm("executor", "executions.dispatching:dispatch:send")

    def fail_a_first_try(self) -> None:
        for service in ("api", "executor", "worker"):
            self._arm(service, "publisher:_deliver:send")

    def _arm(self, service: str, site: str) -> None:
        arm(self.storm.muster, Failpoint(service, site, injection.LIE))
