"""One run: an installation, a load, faults at random times, quiet, and a verdict."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Any

from tests.chaos import campaign, checker, evidence, failpoints, load
from tests.chaos.checker import TERMINAL, Evidence, Violation
from tests.chaos.failpoints import Failpoint
from tests.chaos.faults import Breaker
from tests.chaos.keeper import EXIT_LOST, Keeper
from tests.scenarios.installation import Backend, Installation

PACK = str(Path(__file__).parent / "pack")

SETTINGS: dict[str, Any] = {
    "heartbeat_interval_seconds": 1,
    "staleness_multiplier": 4,
    "worker_queue_ttl_ms": 8_000,
    "start_grace_seconds": 2,
    "run_grace_seconds": 3,
    "publish_timeout_seconds": 2,
    "deadline_seconds": 60,
}
STALENESS_SECONDS = 4.0
FAULT_SECONDS = 2.0
"""How long a fault takes, about: with the pauses between them they fill the time of the load."""

SHORTEST_PAUSE_SECONDS = 1.0

QUIET_SECONDS = 100.0
"""The deadline of what was accepted last, the promised 20 s, and some."""

EXIT_SECONDS = 10.0
"""From the failure of a service's start to its end, at most."""

QUEUES_SECONDS = 60.0
PROBES = 20


@dataclass
class Outcome:
    """A run, and what the checker says of it."""

    seed: int
    backend: str
    evidence: Evidence
    violations: list[Violation]
    seconds: float
    quiet_seconds: float
    """From the last fault and the last submission until all was over."""
    unanswered: int
    cancelled: int
    ended_by_themselves: Counter[str] = field(default_factory=Counter)
    """Services that ended although nobody killed them, workers that gave up not counted."""
    unreached: Sequence[Failpoint] = ()
    """Failpoints that nothing came to."""
    gave_up: int = 0
    """Workers that saw that they were believed to be dead, and ended themselves."""


def run(
    backend: Backend,
    *,
    executions: int,
    faults_of_a_kind: int,
    submit_seconds: float,
    seed: int,
    workers: int = 3,
    executors: int = 1,
    points: Sequence[Failpoint] = (),
    tell: Callable[[str], None] = lambda text: None,
    logs_to: Path | None = None,
) -> Outcome:
    """Submit so many executions, or more, while each fault happens so often and each failpoint
    once; judge what is left."""
    began = time.monotonic()
    muster = Installation(backend, **SETTINGS)
    muster.environment |= campaign.environment(muster)
    keeper = Keeper(muster, executors=executors, workers=workers, seed=seed)
    try:
        muster.client.call("prepare", pack_paths=[PACK])
        keeper.start_all()
        return Storm(muster, keeper, seed=seed, tell=tell, began=began).run(
            executions=executions,
            faults_of_a_kind=faults_of_a_kind,
            submit_seconds=submit_seconds,
            points=points,
        )
    finally:
        keeper.stop()
        backend.restore()
        if logs_to is not None:
            _keep_logs(muster, logs_to)
        muster.close()


class Storm:
    def __init__(
        self,
        muster: Installation,
        keeper: Keeper,
        *,
        seed: int,
        tell: Callable[[str], None],
        began: float,
    ) -> None:
        self.muster, self.keeper, self.seed, self.tell, self.began = (
            muster,
            keeper,
            seed,
            tell,
            began,
        )
        self.database = evidence.Database(muster)
        self.trace = evidence.Trace(muster.directory / "trace")
        self.ledger = muster.directory / "ledger"
        self.watch = evidence.Watch(self.database, self.trace)
        self.breaker = Breaker(
            muster, keeper, self.database, staleness_seconds=STALENESS_SECONDS, seed=seed
        )
        self.rng = random.Random(seed)

    def run(
        self,
        *,
        executions: int,
        faults_of_a_kind: int,
        submit_seconds: float,
        points: Sequence[Failpoint],
    ) -> Outcome:
        client = self.client = load.Load(
            url=self.keeper.url,
            token=self.keeper.token(),
            ledger=self.ledger,
            trace=self.trace.path,
            number=executions,
            seconds=submit_seconds,
            seed=self.seed,
        )
        workers = self.database.select("SELECT id FROM orchestrator_worker")
        client.workers = [row["id"] for row in workers]
        self.watch.start()
        client.start()
        try:
            unreached = self._disturb(faults_of_a_kind, submit_seconds, points)
        finally:
            client.enough.set()
        client.join()
        if client.failure is not None:
            raise client.failure
        self.breaker.finish()
        calm_at = time.monotonic()
        self.tell("no more faults; waiting until all is over")
        self._wait_for_quiet()
        quiet_seconds = time.monotonic() - calm_at
        self._probe()
        queues = self._wait_for_queues()
        self.watch.stop()
        found = self._evidence(queues)
        return Outcome(
            seed=self.seed,
            backend=self.muster.backend.name,
            evidence=found,
            violations=checker.check(found),
            seconds=time.monotonic() - self.began,
            quiet_seconds=quiet_seconds,
            unanswered=client.unanswered,
            cancelled=client.cancelled,
            ended_by_themselves=self._ended_by_themselves(),
            unreached=unreached,
            gave_up=sum(status == EXIT_LOST for _, _, status in self.keeper.ends),
        )

    def _disturb(self, times: int, seconds: float, points: Sequence[Failpoint]) -> list[Failpoint]:
        """Faults from outside, and failpoints at the same time; which of these did not happen."""
        with ThreadPoolExecutor(1) as beside:
            failing = beside.submit(campaign.run, self, points, seed=self.seed)
            if times:
                self._break(times, seconds)
            return failing.result()

    def _break(self, times: int, seconds: float) -> None:
        """Every kind so many times, in random order with random pauses."""
        plan = [kind for kind in self.breaker.kinds for _ in range(times)]
        self.rng.shuffle(plan)
        pause_seconds = max(SHORTEST_PAUSE_SECONDS, seconds / len(plan) - FAULT_SECONDS)
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
            assert tries[kind] < 10 * times, f"{kind} is never possible"
            plan.insert(self.rng.randint(0, len(plan)), kind)

    def _wait_for_quiet(self) -> None:
        """Until nothing is open, or until it should long have been over: the checker decides."""
        until = time.monotonic() + QUIET_SECONDS
        while self.database.count_open() and time.monotonic() < until:
            time.sleep(0.5)

    def _probe(self) -> None:
        """Plain executions run as if nothing had happened: no slot and no service was lost."""
        self.muster.wait_for(
            self.keeper.all_are_up, "services did not come back", within_seconds=60
        )
        parameters = {"trace": str(self.trace.path), "seconds": 0.2}
        ids = self.muster.submit_many([{"parameters": parameters}] * PROBES, "chaos.again")
        rows = self.muster.wait_for_ends(ids, within_seconds=30)
        assert {row.status for row in rows} == {"completed"}, [row.result for row in rows]

    def _wait_for_queues(self) -> dict[str, int]:
        until = time.monotonic() + QUEUES_SECONDS
        while True:
            found = evidence.queues(self.muster)
            waiting = [
                name for name, number in found.items() if number and "maintenance" not in name
            ]
            if not waiting or time.monotonic() > until:
                return found
            time.sleep(1)

    def _evidence(self, queues: dict[str, int]) -> Evidence:
        return Evidence(
            accepted=load.read_ledger(self.ledger),
            rows=self.database.rows(),
            events=self.database.events(),
            lines=list(self.trace.read()),
            sightings=self.watch.sightings,
            queues=queues,
            faults=self.breaker.faults,
            database_outages=self.breaker.outages,
            terminal_digests=self.watch.terminal_digests,
        )

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


def _keep_logs(muster: Installation, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in [
        *muster.directory.glob("*.log"),
        muster.directory / "trace",
        muster.directory / "ledger",
    ]:
        if path.exists():
            (directory / path.name).write_bytes(path.read_bytes())


def _told(reasons: Iterable[str]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in Counter(reasons).most_common())


def summary(outcome: Outcome) -> str:
    """A few lines for a terminal."""
    found = outcome.evidence
    statuses = Counter(row.status for row in found.rows)
    retries = sum(event.event == "retry" for event in found.events)
    lines = [
        f"seed {outcome.seed}, {outcome.backend}: {len(found.accepted)} accepted, "
        f"{len(found.faults)} faults in {outcome.seconds:.0f} s, "
        f"quiet after {outcome.quiet_seconds:.1f} s",
        "  " + ", ".join(f"{statuses[status]} {status}" for status in sorted(TERMINAL)),
        f"  for {_told(row.reason for row in found.rows)}",
        f"  {retries} retries, {outcome.cancelled} cancels, "
        f"{outcome.unanswered} requests unanswered, {outcome.gave_up} workers gave up",
        f"  ended by themselves: {dict(outcome.ended_by_themselves) or 'none'}",
        *(f"  never reached: {point}" for point in outcome.unreached),
        f"  {len(outcome.violations)} violations",
    ]
    for violation in outcome.violations[:20]:
        lines.append(str(violation))
        if violation.execution is not None:
            lines.append(checker.timeline(found, violation.execution))
    return "\n".join(lines)
