"""The harness's supervisor: starts again, a moment later, whatever has ended."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from signal import SIGTERM

import httpx

from tests import servers
from tests.chaos import injection, lanes
from tests.chaos.facts import Life
from tests.chaos.network import Network
from tests.scenarios.installation import Installation, Service

RESTART_SECONDS = (0.5, 3.0)
EXIT_LOST = 70
POLL_SECONDS = 0.05
STALL_SECONDS = 1.0
SLOTS = 2


class Keeper(threading.Thread):
    """Keeps one process of each name running."""

    def __init__(
        self,
        muster: Installation,
        *,
        workers: int,
        seed: int,
        executors: int = 1,
        sensors: int = 0,
        network: Network | None = None,
        queues: Sequence[str] = (),
    ) -> None:
        super().__init__(name="keeper", daemon=True)
        self.muster, self.queues = muster, list(queues)
        self.port = servers.free_port()
        self.services: dict[str, Service] = {}
        self.ends: list[tuple[float, str, int]] = []
        """(when, which service, exit status)."""
        self.stalls: list[tuple[float, float]] = []
        """When this machine had no time for us."""
        self.stopped: set[int] = set()
        """Pids of what was stopped in good order."""
        self.worker_of: dict[int, str] = {}
        """Names of workers by the pids of their first processes."""
        self._began: dict[int, float] = {}
        self._lives: list[Life] = []
        self._starts: dict[str, Callable[[], Service]] = {
            "beat": self._start_beat,
            "api": partial(muster.start_api, self.port, **{injection.ROLE: "api"}),
        }
        for number in range(1, executors + 1):
            name = f"executor{number}" if number > 1 else "executor"
            wires = network.environment(name) if network is not None else {}
            self._starts[name] = partial(
                muster.start_executor, name, **{injection.ROLE: "executor"}, **wires
            )
        for number in range(1, sensors + 1):
            # it fires timers by the code of an executor: what fails there may fail in either
            self._starts[f"sensor{number}"] = partial(
                muster.start_sensor, f"sensor{number}", **{injection.ROLE: "executor"}
            )
        for number in range(1, workers + 1):
            name = f"w{number}"
            wires = network.environment(name) if network is not None else {}
            self._starts[name] = partial(
                muster.start_worker,
                name,
                concurrency=SLOTS,
                pool="prefork" if number % 2 else "threads",
                queues=lanes.subscriptions(number, queues),
                **{injection.ROLE: "worker"},
                **wires,
            )
        self._rng = random.Random(seed)
        self._over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def workers(self) -> list[str]:
        return [name for name in self._starts if name.startswith("w")]

    @property
    def executors(self) -> list[str]:
        return [name for name in self._starts if name.startswith("executor")]

    @property
    def sensors(self) -> list[str]:
        return [name for name in self._starts if name.startswith("sensor")]

    def start_all(self) -> None:
        for name, start in self._starts.items():
            self._begin(name, start)
        self.muster.wait_for(self.all_are_up, "services are not ready", within_seconds=180)
        self.start()

    def all_are_up(self) -> bool:
        return all(self.is_up(name) for name in self._starts)

    def is_up(self, name: str) -> bool:
        service = self.services.get(name)
        if service is None or service.process.poll() is not None:
            return False
        if name != "api":
            try:
                return service.is_up()
            except AssertionError:  # it has just ended
                return False
        try:
            return httpx.get(f"{self.url}/api/v1/health/live", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def running(self, name: str) -> Service | None:
        """The service of this name if it is up."""
        return self.services[name] if self.is_up(name) else None

    def run(self) -> None:
        due: dict[str, float] = {}
        looked_at = time.time()
        while not self._over.wait(POLL_SECONDS):
            looked_at = self._note_stall(looked_at)
            for name, service in list(self.services.items()):
                status = service.process.poll()
                self._note_life(name, service, status)
                if status is None:
                    continue
                if name not in due:
                    due[name] = time.monotonic() + self._rng.uniform(*RESTART_SECONDS)
                    if service.pid not in self.stopped:
                        self.ends.append((time.time(), name, status))
                elif time.monotonic() >= due[name]:
                    del due[name]
                    self._begin(name, self._starts[name])

    def _note_stall(self, looked_at: float) -> float:
        """Whoever looks each 50 ms and comes seconds late was not let run, nor were others."""
        now = time.time()
        if now - looked_at >= STALL_SECONDS:
            self.stalls.append((looked_at, now))
        return now

    def lives(self) -> list[Life]:
        """All lives of all workers, those that go on too."""
        going_on = [
            Life(name, self._began[service.pid])
            for name, service in self.services.items()
            if name in self.workers
            and service.pid in self._began
            and service.process.poll() is None
        ]
        return [*self._lives, *going_on]

    def _begin(self, name: str, start: Callable[[], Service]) -> None:
        self.services[name] = service = start()
        if name in self.workers:
            self.worker_of[service.pid] = name

    def seconds_up(self, name: str) -> float:
        """For how long a worker or an executor has been ready; 0 if it is not."""
        return time.time() - self._began.get(self.services[name].pid, time.time())

    def _note_life(self, name: str, service: Service, status: int | None) -> None:
        """A life is from the first word of a worker, or executor, that it is ready to its end."""
        pid = service.pid
        if name in ("api", "beat"):
            return
        if status is None and pid not in self._began and self.is_up(name):
            self._began[pid] = time.time()
        elif status is not None and pid in self._began and name in self.workers:
            self._lives.append(Life(name, self._began.pop(pid), time.time(), status))

    def terminate(self, service: Service) -> None:
        """Stop one in good order; it comes back like all others."""
        self.stopped.add(service.pid)
        service.signal(SIGTERM)

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()

    def token(self) -> str:
        """A token for the API."""
        return self.muster.token("chaos")

    def _start_beat(self) -> Service:
        # no pidfile: one that a killed beat left would be read by the next
        return self.muster.start(
            "beat", "-m", "celery", "-A", "settings", "beat", "--pidfile", "", "--loglevel", "INFO"
        )
