"""The harness's supervisor: starts again, a moment later, whatever has ended."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from signal import SIGTERM

import httpx

from tests import servers
from tests.chaos import injection
from tests.scenarios.installation import Installation, Service

RESTART_SECONDS = (0.5, 3.0)
EXIT_LOST = 70
POLL_SECONDS = 0.05


class Keeper(threading.Thread):
    """Keeps one process of each name running."""

    def __init__(
        self, muster: Installation, *, workers: int, seed: int, executors: int = 1
    ) -> None:
        super().__init__(name="keeper", daemon=True)
        self.muster = muster
        self.port = servers.free_port()
        self.services: dict[str, Service] = {}
        self.ends: list[tuple[float, str, int]] = []
        """(when, which service, exit status)."""
        self.stopped: set[int] = set()
        """Pids of what was stopped in good order."""
        self._starts: dict[str, Callable[[], Service]] = {
            "beat": self._start_beat,
            "api": partial(muster.start_api, self.port, **{injection.ROLE: "api"}),
        }
        for number in range(1, executors + 1):
            name = f"executor{number}" if number > 1 else "executor"
            self._starts[name] = partial(
                muster.start_executor, name, **{injection.ROLE: "executor"}
            )
        for number in range(1, workers + 1):
            name = f"w{number}"
            self._starts[name] = partial(
                muster.start_worker, name, concurrency=2, **{injection.ROLE: "worker"}
            )
        self._rng = random.Random(seed)
        self._over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def workers(self) -> list[str]:
        return [name for name in self._starts if name.startswith("w")]

    def start_all(self) -> None:
        for name, start in self._starts.items():
            self.services[name] = start()
        self.muster.wait_for(self.all_are_up, "services are not ready", within_seconds=60)
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
        while not self._over.wait(POLL_SECONDS):
            for name, service in list(self.services.items()):
                status = service.process.poll()
                if status is None:
                    continue
                if name not in due:
                    due[name] = time.monotonic() + self._rng.uniform(*RESTART_SECONDS)
                    if service.pid not in self.stopped:
                        self.ends.append((time.time(), name, status))
                elif time.monotonic() >= due[name]:
                    del due[name]
                    self.services[name] = self._starts[name]()

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
        return self.muster.command("token", "create", "chaos").strip()

    def _start_beat(self) -> Service:
        # no pidfile: one that a killed beat left would be read by the next
        return self.muster.start(
            "beat", "-m", "celery", "-A", "settings", "beat", "--pidfile", "", "--loglevel", "INFO"
        )
