"""One run: an installation, a load, faults at random times, quiet, and a verdict."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from types import MappingProxyType
from typing import Any

from tests import servers
from tests.chaos import campaign, checker, evidence, failpoints, faults, lanes, load, policies
from tests.chaos.facts import Event, Evidence, Fault, Line, Row, Violation
from tests.chaos.failpoints import Failpoint
from tests.chaos.faults import Breaker
from tests.chaos.keeper import EXIT_LOST, Keeper
from tests.chaos.network import Network
from tests.chaos.outcome import Outcome
from tests.chaos.profiles import QUICKLY, Profile
from tests.chaos.repairs import Operator
from tests.scenarios.installation import Backend, ClientError, Installation

PACK = str(Path(__file__).parent / "pack")

POISON = "chaos.poison"
"""The action that kills the process in which it runs."""

FAULT_SECONDS = 2.0
"""How long a fault takes, about: with the pauses between them they fill the time of the load."""

SHORTEST_PAUSE_SECONDS = 1.0

EXIT_SECONDS = 10.0
"""From the failure of a service's start to its end, at most."""

QUEUES_SECONDS = 60.0
FORGOTTEN_SECONDS = 15.0
PROBES = 20


def run(
    backend: Backend,
    *,
    executions: int,
    faults_of_a_kind: int,
    submit_seconds: float,
    seed: int,
    steps: int = 0,
    workers: int = 3,
    executors: int = 1,
    sensors: int = 0,
    pack_paths: Sequence[str] = (),
    queues: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    beside: Callable[[Storm], Beside] | None = None,
    kinds: Sequence[str] | None = None,
    points: Sequence[Failpoint] = (),
    profile: Profile = QUICKLY,
    tell: Callable[[str], None] = lambda text: None,
    logs_to: Path | None = None,
) -> Outcome:
    """Submit so many executions and steps, or more, while each fault of these kinds happens so
    often and each failpoint once; judge what is left.

    `beside`: what else is asked of the installation meanwhile, and judged at the end. `queues`:
    those that it needs beside those of every storm, by name; all workers serve them.
    """
    began = time.monotonic()
    muster = Installation(backend, quick=profile.is_quick, **profile.settings)
    muster.environment |= campaign.environment(muster)
    network = Network(muster.environment) if backend.rabbit is not None else None
    keeper = Keeper(
        muster,
        executors=executors,
        sensors=sensors,
        workers=workers,
        seed=seed,
        network=network,
        queues=list(queues),
    )
    try:
        muster.client.call("prepare", pack_paths=[PACK, *pack_paths])
        for name, values in {**lanes.QUEUES, **queues}.items():
            muster.client.call("make_queue", name=name, **values)
        for document in policies.documents():
            muster.client.call("make_policy", **document)
        keeper.start_all()
        storm = Storm(
            muster, keeper, network=network, profile=profile, seed=seed, tell=tell, began=began
        )
        return storm.run(
            executions=executions,
            steps=steps,
            faults_of_a_kind=faults_of_a_kind,
            submit_seconds=submit_seconds,
            kinds=kinds,
            points=points,
            beside=beside,
        )
    finally:
        keeper.stop()
        backend.restore()
        if logs_to is not None:
            _keep_logs(muster, logs_to)
        muster.close()
        if network is not None:
            network.close()


class Beside(threading.Thread):
    """Asks for something else than the load does, and says at the end what is wrong with it."""

    failure: Exception | None = None

    def violations(self) -> list[Violation]:
        raise NotImplementedError


class Storm:
    def __init__(
        self,
        muster: Installation,
        keeper: Keeper,
        *,
        network: Network | None,
        profile: Profile,
        seed: int,
        tell: Callable[[str], None],
        began: float,
    ) -> None:
        self.muster, self.keeper, self.profile = muster, keeper, profile
        self.seed, self.tell, self.began = seed, tell, began
        self.database = evidence.Database(muster)
        self.trace = evidence.Trace(muster.directory / "trace")
        self.ledger = muster.directory / "ledger"
        self.watch = evidence.Watch(self.database, self.trace)
        self.breaker = Breaker(
            muster,
            keeper,
            self.database,
            network=network,
            terms=profile.terms,
            trace=str(self.trace.path),
            seed=seed,
        )
        self.rng = random.Random(seed)
        self.never_emptied: set[str] = set()
        """Queues for cancels of workers without a process, should somebody declare one again."""
        self.cancels = 0
        """Of executions, by others than the load."""

    def run(
        self,
        *,
        executions: int,
        steps: int,
        faults_of_a_kind: int,
        submit_seconds: float,
        kinds: Sequence[str] | None,
        points: Sequence[Failpoint],
        beside: Callable[[Storm], Beside] | None = None,
    ) -> Outcome:
        client = self.client = load.Load(
            url=self.keeper.url,
            token=self.keeper.token(),
            ledger=self.ledger,
            trace=self.trace.path,
            number=executions,
            steps=steps,
            seconds=submit_seconds,
            seed=self.seed,
            open_now=self.database.open_executions,
            least_deadline_seconds=self.profile.deadline_seconds,
        )
        workers = self.database.select("SELECT id FROM orchestrator_worker")
        client.workers = [row["id"] for row in workers]
        self.breaker.api = client.http
        operator = Operator(self.database, client.http)
        client.queues = list(lanes.QUEUES)
        self.make_ghost()
        if self.muster.backend.postgres is not None:
            self.database.keep_true_times()
        self.watch.start()
        operator.start()
        client.start()
        other = None if beside is None else beside(self)
        if other is not None:
            other.start()
        try:
            possible = faults.possible(self.muster.backend)
            plan = self._plan(possible if kinds is None else kinds, faults_of_a_kind)
            unreached = self._disturb(plan, submit_seconds, points)
            self.breaker.finish()
        finally:
            client.enough.set()
            self.breaker.mend()
        for thread in (client, other):
            if thread is not None:
                thread.join()
                if thread.failure is not None:
                    raise thread.failure
        calm_at = time.monotonic()
        self.tell("no more faults; waiting until all is over")
        self._wait_for_quiet()
        quiet_seconds = time.monotonic() - calm_at
        operator.stop()
        failed_probes = self._probe()
        queues = self._wait_for_queues()
        self.watch.stop()
        found = self._evidence(queues)
        return Outcome(
            seed=self.seed,
            backend=self.muster.backend.name,
            evidence=found,
            violations=[
                *failed_probes,
                *checker.check(found),
                *(other.violations() if other is not None else ()),
            ],
            seconds=time.monotonic() - self.began,
            quiet_seconds=quiet_seconds,
            unanswered=client.unanswered,
            cancelled=client.cancelled,
            ended_by_themselves=self._ended_by_themselves(),
            unreached=unreached,
            gave_up=sum(status == EXIT_LOST for _, _, status in self.keeper.ends),
            profile=self.profile.name,
            repairs=operator.repairs,
        )

    # ---- workers without a process ----

    def make_ghost(self) -> None:
        """A worker that has a queue and never comes: the way to many dead letters."""
        self.breaker.ghost = self.worker_without_process("ghost")
        self.client.ghosts = [self.breaker.ghost]

    def worker_without_process(self, name: str) -> int:
        """With a queue for dispatches, and none for cancels: nobody would ever empty it."""
        client = self.muster.client
        id: int = client.call("enlist", name=name)
        client.call("declare_worker_queues", id=id)
        [_, (cancels, *_)] = client.call("queues_of_worker", id=id)
        with self.breaker.channel() as channel:
            channel.queue_delete(cancels)
        self.never_emptied.add(cancels)
        return id

    # ---- what is broken ----

    def _plan(self, kinds: Sequence[str], times: int) -> list[str]:
        """Every kind so many times, in random order."""
        plan = [kind for kind in kinds for _ in range(times)]
        self.rng.shuffle(plan)
        return plan

    def _disturb(
        self, plan: list[str], seconds: float, points: Sequence[Failpoint]
    ) -> list[Failpoint]:
        """Faults from outside, and failpoints at the same time; which of these did not happen."""
        with ThreadPoolExecutor(1) as beside:
            failing = beside.submit(campaign.run, self, points, seed=self.seed)
            if plan:
                self._break(plan, seconds)
            return failing.result()

    def _break(self, plan: list[str], seconds: float) -> None:
        """One after another, with random pauses."""
        pause_seconds = max(SHORTEST_PAUSE_SECONDS, seconds / len(plan) - FAULT_SECONDS)
        wanted = Counter(plan)
        tries = Counter[str]()
        done = 0
        while plan:
            time.sleep(self.rng.uniform(0, 2 * pause_seconds))
            kind = plan.pop(0)
            if self.breaker.cause(kind):
                done += 1
                fault = self.breaker.faults[-1]
                self.tell(f"fault {done}: {kind} {fault.detail}, {len(plan)} to come")
                continue
            tries[kind] += 1
            assert tries[kind] < 10 * wanted[kind], f"{kind} is never possible"
            plan.insert(self.rng.randint(0, len(plan)), kind)

    def _wait_for_quiet(self) -> None:
        """Until nothing is open, or until it should long have been over: the checker decides."""
        until = time.monotonic() + self.profile.quiet_seconds
        while self.database.count_open() and time.monotonic() < until:
            time.sleep(0.5)

    def _probe(self) -> list[Violation]:
        """Plain executions run as if nothing had happened: no slot and no service was lost."""
        try:
            self.muster.wait_for(
                self.keeper.all_are_up, "services did not come back", within_seconds=180
            )
            parameters = {"trace": str(self.trace.path), "seconds": 0.2}
            asked: list[dict[str, Any]] = [{"parameters": parameters} for _ in range(PROBES)]
            # each worker has its share: one that hangs must not hide behind the others
            for name, new in zip(itertools.cycle(self.keeper.workers), asked, strict=False):
                new["worker_id"] = self.breaker.worker_id(name)
            ids = self.muster.submit_many(asked, "chaos.again")
            rows = self.muster.wait_for_ends(ids, within_seconds=90)
        except (AssertionError, ClientError) as error:
            return [Violation("all_is_as_before", str(error)[:300])]
        return [
            Violation("all_is_as_before", f"a plain execution is {row.status}", str(row.id))
            for row in rows
            if row.status != "completed"
        ]

    def _wait_for_queues(self) -> dict[str, int]:
        until = time.monotonic() + QUEUES_SECONDS
        found = {"queues that cannot be listed": 1}
        while True:
            with contextlib.suppress(servers.ServerError):
                found = evidence.queues(self.muster)
            for name in self.never_emptied:
                found.pop(name, None)
            waiting = [
                name for name, number in found.items() if number and "maintenance" not in name
            ]
            if not waiting or time.monotonic() > until:
                return found
            time.sleep(1)

    def _policy_rows(self) -> dict[str, int]:
        """What policies count when maintenance has come by."""
        until = time.monotonic() + FORGOTTEN_SECONDS
        while True:
            slots, waits = self.muster.client.call("policy_rows")
            if not (slots or waits) or time.monotonic() > until:
                return {"slots": slots, "waits": waits}
            time.sleep(1)

    def _evidence(self, queues: dict[str, int]) -> Evidence:
        database, client = self.database, self.client
        events = database.events()
        rows = database.rows(events)
        lines = list(self.trace.read())
        ended_at = {row.execution: row.ended_at for row in rows}
        return Evidence(
            accepted=[
                replace(
                    a, deadline_at=database.last_before(a.deadline_at, by=ended_at.get(a.execution))
                )
                for a in load.read_ledger(self.ledger)
            ],
            rows=rows,
            events=events,
            lines=lines,
            sightings=self.watch.sightings,
            queues=queues,
            faults=[*self.breaker.faults, *self._stalls(), *poisonings(rows, events, lines)],
            database_outages=self.breaker.outages,
            terminal_digests=self.watch.terminal_digests,
            last_open=self.watch.last_open,
            lives=self.keeper.lives(),
            terms=self.profile.terms,
            lanes=lanes.served(self.keeper.workers, self.keeper.queues),
            limits=policies.LIMITS,
            policy_rows=self._policy_rows(),
            cancels=client.cancels_asked + self.cancels,
            wrong_answers=client.wrong_answers,
            neighbours=self.breaker.neighbours,
            clock_steps=[step.at for step in database.clock_steps],
            accepted_tasks=client.tasks,
            tasks=database.tasks(),
            steps=database.steps(),
            records=database.records(),
            tries=database.tries(),
            unanswered=database.unanswered(),
            failed_tasks=evidence.failed_tasks(self.muster.directory),
        )

    def _stalls(self) -> list[Fault]:
        """When the machine itself stood still: nobody broke it, and it counts as a fault."""
        everybody = frozenset(self.keeper.workers)
        return [
            Fault("machine stalled", at, until, "", everybody) for at, until in self.keeper.stalls
        ]

    def _ended_by_themselves(self) -> Counter[str]:
        """What ended although nobody killed it. A service that finds no database when it starts
        exits, for its supervisor to start it again."""
        without_database = [(begin, end + 1) for begin, end in self.breaker.outages]
        without_database += [
            (fault.at, fault.at + EXIT_SECONDS)
            for fault in self.breaker.faults
            if any(site in fault.detail for site in failpoints.AT_THE_START)
        ]
        return Counter(
            f"{name} ({status})"
            for at, name, status in self.keeper.ends
            if status not in (-SIGKILL, EXIT_LOST)
            and not any(begin <= at <= end for begin, end in without_database)
        )


def poisonings(
    rows: Sequence[Row], events: Sequence[Event], lines: Sequence[Line]
) -> Iterator[Fault]:
    """Actions that killed their own process, as faults of the workers that had them."""
    poison = {row.execution for row in rows if row.action == POISON}
    claims = {
        (event.execution, event.attempt): event.actor for event in events if event.event == "claim"
    }
    for line in lines:
        worker = claims.get((line.execution, line.attempt))
        if line.event == "start" and line.execution in poison and worker is not None:
            yield Fault("poison", line.at, line.at, line.execution, frozenset({worker}))


def _keep_logs(muster: Installation, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in [
        *muster.directory.glob("*.log"),
        muster.directory / "trace",
        muster.directory / "ledger",
    ]:
        if path.exists():
            (directory / path.name).write_bytes(path.read_bytes())
