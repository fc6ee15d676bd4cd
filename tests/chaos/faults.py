"""What breaks: each fault is a method that breaks one thing and says what it was."""

from __future__ import annotations

import random
import time
from signal import SIGKILL

import psutil

from tests.chaos.breaking import Breaking, Broken, NotNow
from tests.chaos.facts import Fault
from tests.chaos.message_faults import MessageFaults
from tests.chaos.server_faults import ServerFaults
from tests.chaos.sqlite_locks import is_held_by
from tests.chaos.wire_faults import WireFaults
from tests.scenarios.installation import Backend, Service

EVERYWHERE = (
    "kill pool child",
    "kill worker",
    "stop worker",
    "kill executor",
    "kill beat",
    "kill api",
    "freeze worker",
    "freeze executor",
    "freeze api",
    "busy worker",
    "delete worker queue",
    "duplicate dispatches",
    "garbage on every queue",
)
ON_SERVERS = (
    "stop broker",
    "kill broker",
    "freeze broker",
    "long broker outage",
    "broker memory alarm",
    "close all connections",
    "cut worker from broker",
    "silent broker",
    "restart database",
    "freeze database",
    "read-only database",
    "full database",
    "no free connection",
    "cut worker from database",
    "silent database",
    "silent maintenance",
    "hold row locks",
    "step clock forward",
    "step clock back",
    "delete exchange",
    "delete binding",
    "empty virtual host",
    "second installation",
    "cut redis",
)

OF_SENSORS = ("kill sensor",)
"""Possible where a storm has sensor services."""

OF_GATES = ("delete output queue",)
"""Possible where a storm has a client of gates, which does it itself."""

ALWAYS = frozenset(
    {
        "kill pool child", "kill worker", "kill executor", "kill beat", "kill api",
        "freeze worker", "delete worker queue", "duplicate dispatches", "garbage on every queue",
        "stop broker", "kill broker", "restart database", "close all connections", "cut redis",
    }
)  # fmt: skip
"""Quick ones, which every storm has."""

ALONE_FREEZE_SECONDS, FREEZE_SECONDS = 8.0, 25.0
"""Longest time for which an executor stands still: as the only one, and with another beside it."""

CROWD = 30

EMBEDDED_FILES = {"database held": "muster.db", "broker held": "broker.db"}
"""What it is called when somebody who stands still holds the write lock of such a file."""


class ProcessFaults(Breaking):
    """What happens to a service's processes."""

    def kill_pool_child(self) -> Broken:
        worker = self._worker()
        children = psutil.Process(worker.pid).children()
        if not children:
            raise NotNow
        child = self._rng.choice(children)
        child.send_signal(SIGKILL)
        return Broken(f"{child.pid} of {worker.name}", frozenset({worker.name}))

    def kill_worker(self) -> Broken:
        worker = self._worker()
        if self._rng.random() < 0.5:
            worker.kill()
            return Broken(f"{worker.name}, its first process", frozenset({worker.name}))
        worker.kill_tree()
        return Broken(f"{worker.name}, all of it", frozenset({worker.name}))

    def stop_worker(self) -> Broken:
        """In good order, with work in hand: it drains, gives back and leaves."""
        up = [name for name in self.keeper.workers if self.keeper.running(name) is not None]
        if len(up) < 2:  # another does the work meanwhile
            raise NotNow
        worker = self._worker()
        self.keeper.terminate(worker)
        seconds = self.terms.shutdown_seconds
        return Broken(worker.name, frozenset({worker.name}), seconds)

    def kill_executor(self) -> Broken:
        return self._kill(self._executor().name)

    def kill_beat(self) -> Broken:
        return self._kill("beat")

    def kill_api(self) -> Broken:
        return self._kill("api")

    def kill_sensor(self) -> Broken:
        return self._kill(*self.keeper.sensors)

    def freeze_worker(self) -> Broken:
        """SIGSTOP its whole tree until it is believed to be dead, then SIGCONT."""
        worker = self._worker()
        seconds = self.terms.staleness_seconds + self._rng.uniform(1.5, 4.0)
        self._freeze(worker, seconds)
        detail = f"{worker.name} for {seconds:.1f} s"
        return Broken(detail, frozenset({worker.name}), seconds)

    def freeze_executor(self) -> Broken:
        """In the middle of whatever it does, with the rows that it holds."""
        alone = len(self.keeper.executors) == 1
        seconds = self._rng.uniform(2, ALONE_FREEZE_SECONDS if alone else FREEZE_SECONDS)
        executor = self._executor()
        self._freeze(executor, seconds)
        return Broken(f"{executor.name} for {seconds:.1f} s", seconds=seconds)

    def freeze_api(self) -> Broken:
        seconds = self._rng.uniform(2, 6)
        self._freeze(self._find("api"), seconds)
        return Broken(f"for {seconds:.1f} s", seconds=seconds)

    def _freeze(self, service: Service, seconds: float) -> None:
        """Embedded, it may hold a file's one write lock: then nobody writes meanwhile."""
        at = time.time()
        service.pause_tree()
        pids = {process.pid for process in service.tree()}
        self._for_a_while(seconds, service.resume_tree)
        for kind, name in EMBEDDED_FILES.items():
            if is_held_by(self.muster.directory / name, pids):
                until = time.time() + seconds
                self.faults.append(Fault(kind, at, until, service.name, self.everybody))
                if kind == "database held":
                    self.outages.append((at, until))

    def busy_worker(self) -> Broken:
        """All its slots have work that takes longer than a message may wait, and there is more
        work than the others can take at once."""
        worker = self._worker()
        id, slots = self.worker_id(worker.name), self.terms.slots
        seconds = self.terms.queue_ttl_seconds + self.terms.start_grace_seconds + 3
        longs = self._submit(slots, "chaos.long", seconds, worker_id=id)
        until = time.monotonic() + 5
        while self._number_of_running(longs) < slots and time.monotonic() < until:
            time.sleep(0.1)
        # all at once, so that some is sent ahead to the one that has no slot
        parameters = {"trace": self.trace, "seconds": 0.3}
        self.muster.submit_many([{"parameters": parameters}] * CROWD, "chaos.once")
        detail = f"{worker.name} for {seconds:.0f} s"
        return Broken(detail, frozenset({worker.name}), seconds)

    def _number_of_running(self, ids: list[str]) -> int:
        rows = self.database.select(
            "SELECT id FROM orchestrator_execution WHERE status = 'running'"
        )
        return len({str(row["id"]) for row in rows} & set(ids))

    def _kill(self, *names: str) -> Broken:
        service = self._find(*self._rng.sample(names, k=len(names)))
        service.kill()
        return Broken(f"{service.name}, {service.pid}")


class Breaker(ProcessFaults, MessageFaults, ServerFaults, WireFaults):
    """All kinds of faults."""


def possible(backend: Backend) -> tuple[str, ...]:
    """What can be broken in an installation there."""
    postgres = backend.postgres
    if postgres is None:
        return EVERYWHERE
    impossible = set() if postgres.has_disk else {"full database"}
    if not postgres.has_own_clock:
        impossible |= {"step clock forward", "step clock back"}
    return tuple(kind for kind in EVERYWHERE + ON_SERVERS if kind not in impossible)


def some(backend: Backend, *, number: int, seed: int) -> list[str]:
    """What was always broken, and so many others: each takes its time."""
    kinds = possible(backend)
    others = [kind for kind in kinds if kind not in ALWAYS]
    chosen = random.Random(seed).sample(others, k=min(number, len(others)))
    return [*(kind for kind in kinds if kind in ALWAYS), *chosen]
