"""The stage that the benchmarks run on: private servers, and parties of real processes.

PostgreSQL is durable as a new installation of it is: `fsync` and `synchronous_commit` on.
Nothing outlives the run, and all traffic is to this machine's loopback.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.remote import REPOSITORY, BenchmarkError, Remote
from benchmarks.rivals import Rival
from tests import servers

START_SECONDS = 60.0
SETTLE_SECONDS = 30.0
SLOWEST_PER_SECOND = 20
"""A run slower than this is given up."""


class Stage:
    """Servers, started when first asked for and shared by all benchmarks of a run."""

    def __init__(self) -> None:
        self._exits = contextlib.ExitStack()
        self._numbers = itertools.count(1)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @cached_property
    def postgres(self) -> servers.PostgresServer:
        return self._exits.enter_context(servers.PostgresServer(durable=True))

    @cached_property
    def rabbit(self) -> servers.RabbitServer:
        return self._exits.enter_context(servers.RabbitServer())

    @cached_property
    def redis(self) -> servers.RedisServer:
        return self._exits.enter_context(servers.RedisServer())

    def database_url(self) -> str:
        """A new database."""
        name = f"bench_{next(self._numbers)}"
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.postgres.url.rpartition("/")[0] + f"/{name}"

    def broker_url(self) -> str:
        """A new virtual host."""
        name = f"bench_{next(self._numbers)}"
        self.rabbit.control("add_vhost", name)
        self.rabbit.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return self.rabbit.url.rpartition("//")[0] + f"/{name}"

    @contextlib.contextmanager
    def muster(
        self,
        *,
        pool: str = "",
        slots: int = 2,
        embedded: bool = False,
        sensors: int = 0,
        manage: Sequence[str] = ("manage.py",),
        **settings: Any,
    ) -> Iterator[Muster]:
        """An installation with one executor and one worker, at its default settings.

        `manage`: how its services are started, in place of `manage.py`.
        """
        environment = {f"MUSTER_{name.upper()}": str(value) for name, value in settings.items()}
        if not embedded:
            environment |= {"DATABASE_URL": self.database_url(), "BROKER_URL": self.broker_url()}
        with contextlib.closing(Muster(environment)) as party:
            party.remote.call("prepare")
            if slots:
                party.start("executor", *manage, "executor")
                party.start("worker", *manage, "worker", *_worker(pool, slots))
            for number in range(1, sensors + 1):
                party.start(f"sensor{number}", *manage, "sensor", "--name", f"s{number}")
            party.ready()
            yield party

    @contextlib.contextmanager
    def gate(self, *, pool: str = "", slots: int = 2) -> Iterator[GateMuster]:
        """An installation whose worker serves the queue of a gate, and nothing else."""
        environment = {"DATABASE_URL": self.database_url(), "BROKER_URL": self.broker_url()}
        with contextlib.closing(GateMuster(environment)) as party:
            party.remote.call("prepare")
            party.start("executor", "manage.py", "executor")
            queues = ("--queues", "bench,exhausted")
            party.start("worker", "manage.py", "worker", *_worker(pool, slots), *queues)
            party.ready()
            yield party

    @contextlib.contextmanager
    def rival(self, rival: Rival) -> Iterator[Party]:
        environment = {
            "DATABASE_URL": self.database_url(),
            "BROKER_URL": self.broker_url(),
            "REDIS_URL": self.redis.url,
        }
        with contextlib.closing(Party(rival.name, rival.module, environment)) as party:
            party.remote.call("prepare")
            party.start("worker", *rival.command)
            party.ready()
            party.pause()
            yield party


def _worker(pool: str, slots: int) -> list[str]:
    """The arguments of the worker, whose pool is the default one if none is named."""
    return ["--name", "w1", "--concurrency", str(slots), *(["--pool", pool] if pool else [])]


class Party:
    """One system: its services as processes, and the processes that submit to it."""

    pauses = True
    """Stopped (SIGSTOP) while it is not its turn, so that it takes nothing from the other."""

    def __init__(self, name: str, module: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self.module = module
        self.directory = Path(tempfile.mkdtemp(prefix="muster-bench-"))
        self._guardian = servers.Guardian(self.directory)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "RIVAL_DONE": str(self.directory / "done"),
            **environment,
        }
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self.remotes: list[Remote] = []

    @property
    def remote(self) -> Remote:
        return self.clients(1)[0]

    def clients(self, number: int) -> list[Remote]:
        while len(self.remotes) < number:
            self.remotes.append(Remote(self.module, self.environment, self.directory))
            self._watch()
        return self.remotes[:number]

    def start(self, name: str, *command: str) -> None:
        """Start `python <command>` as a service of this party."""
        with self._log(name).open("ab") as log:
            self.services[name] = subprocess.Popen(
                [sys.executable, *command],
                env=self.environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watch()

    def ready(self) -> None:
        """Wait until every service has said so."""
        until = time.monotonic() + START_SECONDS
        for name, process in self.services.items():
            while "ready." not in self._log(name).read_text(errors="replace"):
                if process.poll() is not None or time.monotonic() > until:
                    end = self._log(name).read_text(errors="replace")[-2000:]
                    raise BenchmarkError(f"{self.name}: the {name} did not start:\n{end}")
                time.sleep(0.05)

    def listening(self, name: str, port: int) -> None:
        """Wait until a service, which does not say when it is ready, takes connections."""
        until = time.monotonic() + START_SECONDS
        while not servers.is_listening(port):
            if self.services[name].poll() is not None or time.monotonic() > until:
                end = self._log(name).read_text(errors="replace")[-2000:]
                raise BenchmarkError(f"{self.name}: the {name} did not start:\n{end}")
            time.sleep(0.05)

    def tree(self, name: str) -> list[psutil.Process]:
        parent = psutil.Process(self.services[name].pid)
        return [parent, *parent.children(recursive=True)]

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """The time in which this party, and no other, is at work."""
        if self.pauses:
            self.resume()
            time.sleep(0.2)
        try:
            yield
        finally:
            if self.pauses:
                self.pause()

    def check(self, count: int) -> None:
        """Nothing more is asked of a rival than to have finished."""

    def settle(self, count: int) -> None:
        """After what was measured one at a time: nothing is left to do for a rival."""

    def begin(self) -> None:
        self.remote.call("begin")

    def per_second(self, count: int, *, bulk: bool = True, clients: int = 1) -> float:
        """Executions a second, from the first request to the last end that can be seen."""
        with self.turn():
            self.begin()
            remotes = self.clients(clients)
            shares = [count // clients + (n < count % clients) for n in range(clients)]
            started = time.monotonic()
            for remote, share in zip(remotes, shares, strict=True):
                remote.ask("submit", count=share, bulk=bulk)
            for remote in remotes:
                remote.answer()
            patience = 30 + count / SLOWEST_PER_SECOND
            ended: float = self.remote.call("wait", count=count, within_seconds=patience)
            self.check(count)
        return count / (ended - started)

    def warm_up(self, *, count: int = 300, clients: int = 1) -> None:
        """Connections made, modules imported, pools up: once before the first round."""
        for bulk in (True, False):
            self.per_second(count, bulk=bulk, clients=clients)

    def close(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.resume()
        for remote in self.remotes:
            remote.close()
        processes = [
            process
            for name, service in self.services.items()
            if service.poll() is None
            for process in self.tree(name)
        ]
        for service in self.services.values():
            service.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            for service in self.services.values():
                service.wait(5)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for service in self.services.values():
            service.wait()
        self._guardian.dismiss()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        for name in self.services:
            for process in self.tree(name):
                process.send_signal(number)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _watch(self) -> None:
        started: Sequence[subprocess.Popen[bytes]] = [
            *self.services.values(),
            *(remote.process for remote in self.remotes),
        ]
        self._guardian.watch([-process.pid for process in started])


class Muster(Party):
    """An installation of Muster. It is never stopped: its workers would be declared lost. What
    it takes while it waits counts against it, not for it."""

    pauses = False
    keeps = False
    """True if what earlier runs left stays in the tables."""

    module = "benchmarks.muster_side"

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("Muster", self.module, environment)
        self.environment["MUSTER_DATA_DIR"] = str(self.directory)

    def begin(self) -> None:
        self.remote.call("begin", keep=self.keeps)

    def check(self, count: int) -> None:
        self.remote.call("check", count=count)

    def settle(self, count: int) -> None:
        self.remote.call("wait", count=count, within_seconds=SETTLE_SECONDS)
        self.check(count)


class GateMuster(Muster):
    """An installation with a gate; its client publishes task messages and waits for answers."""

    module = "benchmarks.gate_side"
    beside = 0
    """Executions of another queue, which starts none of them, that wait meanwhile."""

    def begin(self) -> None:
        super().begin()
        if self.beside:
            self.remote.call("wait_in_line", count=self.beside)

    def settle(self, count: int) -> None:
        """Nothing: who measured one at a time has taken each answer."""
