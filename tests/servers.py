"""Private PostgreSQL, RabbitMQ and Redis for tests and benchmarks.

Each server runs from the installed binaries on ports of its own, with data in a temporary
directory, so that it never meets a server of the user's and runs may overlap. Data and ports
outlive `stop()` and `kill()`: what was durable is there after the next `start()`.

    with RabbitServer() as rabbit:
        connect(rabbit.url)
        rabbit.kill()   # kill -9, as a power cut would
        rabbit.start()
        rabbit.pause()  # alive to TCP, deaf to everything else
        rabbit.resume()

Nothing survives the process that started it, even if that is killed: see `Guardian`.
"""

from __future__ import annotations

import abc
import contextlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import amqp
import psutil
import psycopg

from tests.freezing import freeze

TIMEOUT_SECONDS = 180.0

# Below the ephemeral range of Linux and macOS: while a server is down, no outgoing connection can
# be given its port, and no reconnecting client can end up connected to itself.
PORTS = range(10_000, 32_768)

# Newest first is what `find` makes of versions.
POSTGRES_DIRECTORIES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
# Before PATH: Debian's /usr/sbin/rabbitmq-server is a wrapper for the users root and rabbitmq only.
RABBIT_DIRECTORIES = (
    "/usr/lib/rabbitmq/bin",
    "/usr/lib/rabbitmq/lib/*/sbin",
    "/opt/homebrew/opt/rabbitmq/sbin",
    "/usr/local/opt/rabbitmq/sbin",
)


class ServerError(Exception):
    """A private server did not do what it was told."""


class MissingBinary(ServerError):
    """A server's binary is not installed."""


class ServerDidNotStart(ServerError):
    """A private server exited while starting."""


class Server(abc.ABC):
    """One private server. Create it, `start()` it, and `close()` it to remove its data."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"muster-{self.name}-"))
        self._guardian = Guardian(self.directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared = False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """Where clients connect to; the same over the server's whole life."""

    @property
    def pid(self) -> int:
        """The pid of the running server's first process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and return once the server answers; ServerDidNotStart has the end of its log."""
        if self.is_running:
            return
        if not self._prepared:
            self._prepare()
            self._prepared = True
        self._process = self._spawn(self._command())
        self._watch()
        wait_until(lambda: not self.is_running or self._answers(), f"{self.name} does not answer")
        if not self.is_running:
            raise ServerDidNotStart(f"{self.name} exited:\n{self.log()[-4000:]}")

    def stop(self) -> None:
        """Stop in an orderly way; data and port are kept. A server that is slow is killed."""
        if not self.is_running:
            return
        process = self._running()
        self.resume()  # a paused one would never hear it
        process.send_signal(self.stop_signal)
        try:
            process.wait(TIMEOUT_SECONDS / 2)
        except subprocess.TimeoutExpired:
            self.kill()
        self._watch()

    def kill(self) -> None:
        """SIGKILL every process of the server at once; data and port are kept."""
        if not self.is_running:
            return
        process, tree = self._running(), self._tree()
        self._signal(signal.SIGKILL)
        process.wait()
        # a PostgreSQL backend that still lives would keep the next start from taking the data
        wait_until(lambda: not any(map(is_alive, tree)), f"{self.name} outlives SIGKILL")
        self._watch()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as behind a dead network."""
        freeze(self._tree())
        # a stopped backend would not notice that its parent has gone
        self._watch(process.pid for process in self._tree())

    def resume(self) -> None:
        """SIGCONT, after `pause()`."""
        self._signal(signal.SIGCONT)
        self._watch()

    def close(self) -> None:
        """Stop and remove everything. The server cannot be started again."""
        self.stop()
        self._guardian.dismiss()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log(self) -> str:
        """What the server wrote to its output so far."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _prepare(self) -> None:
        """Fill the directory, once, before the first start."""
        give_to_owner(self.directory)

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """What runs in the foreground until it is stopped."""

    @abc.abstractmethod
    def _answers(self) -> bool:
        """Whether a client is served right now: an open port is not enough."""

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.directory)}

    def _own_processes(self) -> list[subprocess.Popen[bytes]]:
        """What must not outlive us; each leads a process group."""
        return [self._process] if self._process is not None and self.is_running else []

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / "server.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=self._environment(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **run_as_owner(),
            )

    def _watch(self, pids: Iterable[int] = ()) -> None:
        groups = [-process.pid for process in self._own_processes()]
        self._guardian.watch([*groups, *pids])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError(f"{self.name} was not started")
        return self._process

    def _tree(self) -> list[psutil.Process]:
        """Parent first: it must not start children while the others are being stopped."""
        parent = psutil.Process(self._running().pid)
        return [parent, *parent.children(recursive=True)]

    def _signal(self, number: signal.Signals) -> None:
        # process by process: PostgreSQL's backends leave the group of their parent
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


class PostgresServer(Server):
    """PostgreSQL. `durable=True` syncs to disk as in production, for benchmarks.

    With `has_own_clock` its wall clock can be stepped while it runs (`step_clock`), what counts
    seconds goes on as it should. With `disk_mb` its data are on a disk of that size, which can be
    filled (`fill_disk`): that needs root on Linux.
    """

    name = "postgres"
    stop_signal = signal.SIGINT  # do not wait for clients to leave

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: dict[str, str] | None = None,
        has_own_clock: bool = False,
        disk_mb: int | None = None,
    ) -> None:
        self._binaries = find("initdb", POSTGRES_DIRECTORIES).parent
        self._disk_mb = disk_mb
        super().__init__()
        self._clock = SettableClock(self.directory) if has_own_clock else None
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "jit": "off",  # as in the sessions of services
        }
        if not durable:
            self._settings |= {
                "fsync": "off",
                "full_page_writes": "off",
                "synchronous_commit": "off",
            }
        self._settings |= settings or {}

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def has_own_clock(self) -> bool:
        return self._clock is not None

    @property
    def has_disk(self) -> bool:
        """Whether its data are on a disk of its own."""
        return self._disk_mb is not None

    def step_clock(self, offset_seconds: float) -> None:
        """From now on its clock is off by this much, forward or back; at once and everywhere."""
        assert self._clock is not None
        self._clock.set(offset_seconds)

    def fill_disk(self) -> None:
        """Leave no byte of its disk to it, although it goes on writing meanwhile."""
        taken = 0
        with self._filler.open("wb") as filler:
            for chunk in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):  # no room for another one
                    while True:
                        os.posix_fallocate(filler.fileno(), taken, chunk)
                        taken += chunk

    def free_disk(self) -> None:
        """Give back what `fill_disk` took; a server that has ended of it is started again."""
        self._filler.unlink(missing_ok=True)
        self.start()

    def close(self) -> None:
        self.stop()
        if self._disk_mb is not None and os.path.ismount(self._data):
            subprocess.run(["umount", "--lazy", str(self._data)], check=True)
        super().close()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _filler(self) -> Path:
        return self._data / "filler"

    def _environment(self) -> dict[str, str]:
        return super()._environment() | ({} if self._clock is None else self._clock.environment)

    def _mount_disk(self) -> None:
        self._data.mkdir()
        options = f"size={self._disk_mb}m,mode=0700"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._data)]
        subprocess.run(command, check=True)
        give_to_owner(self._data)
        # else its log grows to a gigabyte before it is used again
        self._settings |= {"max_wal_size": "64MB", "min_wal_size": "32MB"}

    def _prepare(self) -> None:
        super()._prepare()
        if self._disk_mb is not None:
            self._mount_disk()
        command = [str(self._binaries / "initdb"), "--pgdata", str(self._data)]
        command += ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        initdb = self._spawn([*command, "--no-sync"])
        if initdb.wait() != 0:
            raise ServerDidNotStart(f"initdb failed:\n{self.log()[-4000:]}")

    def _command(self) -> list[str]:
        command = [str(self._binaries / "postgres"), "-D", str(self._data)]
        command += ["-p", str(self.port)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class RabbitServer(Server):
    """RabbitMQ, with an epmd of its own: nodes of other runs cannot clash or be seen.

    With `joins`, this node and that one become a cluster at the first start; that one is closed
    last.
    """

    name = "rabbitmq"

    def __init__(
        self,
        *,
        plugins: tuple[str, ...] = (),
        configuration: str = "",
        joins: RabbitServer | None = None,
    ) -> None:
        """`configuration` is added to rabbitmq.conf."""
        self._scripts = find("rabbitmq-server", RABBIT_DIRECTORIES).parent
        self._epmd_binary = find("epmd")
        super().__init__()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_port: int = joins._epmd_port if joins else free_port()
        self._distribution_port = free_port()
        self._joins = joins
        self._plugins = plugins
        self._configuration = configuration

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    @property
    def node(self) -> str:
        """Its name among the nodes of a cluster."""
        return f"muster{self.port}@localhost"

    def start(self) -> None:
        is_new = not self._prepared
        super().start()
        if is_new and self._joins is not None:
            for step in (["stop_app"], ["join_cluster", self._joins.node], ["start_app"]):
                self.control(*step)

    def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl <arguments>` against this node and return what it prints."""
        try:
            completed: subprocess.CompletedProcess[str] = subprocess.run(
                [str(self._scripts / "rabbitmqctl"), "--quiet", *arguments],
                env=self._environment(),
                cwd=self.directory,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                **run_as_owner(),
            )
        except subprocess.TimeoutExpired as error:
            raise ServerError(f"rabbitmqctl {arguments}: {error}") from None
        if completed.returncode != 0:
            raise ServerError(f"rabbitmqctl {arguments}: {completed.stderr or completed.stdout}")
        return completed.stdout

    def close(self) -> None:
        self.stop()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
        super().close()

    def _prepare(self) -> None:
        files = {
            ".erlang.cookie": "only known on loopback",
            "enabled_plugins": f"[{','.join(self._plugins)}].",
            "advanced.config": "[].\n",
            "rabbitmq.conf": (
                "log.console = true\n"
                "log.file = false\n"
                # the defaults depend on the machine; an alarm would block every publisher
                "vm_memory_high_watermark.absolute = 1GB\n"
                "disk_free_limit.absolute = 50MB\n" + self._configuration
            ),
        }
        for name, text in files.items():
            (self.directory / name).write_text(text)
        (self.directory / ".erlang.cookie").chmod(0o400)
        super()._prepare()
        if self._joins is not None:
            return
        command = [str(self._epmd_binary), "-address", "127.0.0.1", "-port", str(self._epmd_port)]
        self._epmd = self._spawn(command)
        wait_until(lambda: is_listening(self._epmd_port), "epmd does not answer")

    def _command(self) -> list[str]:
        return [str(self._scripts / "rabbitmq-server")]

    def _environment(self) -> dict[str, str]:
        def inside(name: str) -> str:
            return str(self.directory / name)

        return super()._environment() | {
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_ADVANCED_CONFIG_FILE": inside("advanced.config"),
            "RABBITMQ_CONFIG_FILE": inside("rabbitmq.conf"),
            "RABBITMQ_CONFIG_FILES": inside("conf.d"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": inside("enabled_plugins"),
            "RABBITMQ_LOG_BASE": inside("log"),
            "RABBITMQ_MNESIA_BASE": inside("mnesia"),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": inside("pid"),
            # idle schedulers sleep instead of spinning; no epmd but ours; nothing on the network
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+sbwt none -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
            ),
        }

    def _own_processes(self) -> list[subprocess.Popen[bytes]]:
        return super()._own_processes() + ([self._epmd] if self._epmd else [])

    def _answers(self) -> bool:
        try:
            with amqp.Connection(f"127.0.0.1:{self.port}", connect_timeout=2, read_timeout=2):
                return True
        except (OSError, amqp.exceptions.AMQPError):
            return False


class RedisServer(Server):
    """Redis, with an append-only file so that data outlives a restart."""

    name = "redis"

    def __init__(self, *, arguments: tuple[str, ...] = ()) -> None:
        self._binary = find("redis-server")
        self._arguments = arguments
        super().__init__()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        command = [str(self._binary), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.directory), "--save", "", "--appendonly", "yes"]
        return [*command, *self._arguments]

    def _answers(self) -> bool:
        # not through redis-py, which would try again and again on its own
        address = ("127.0.0.1", self.port)
        try:
            with socket.create_connection(address, timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


class Guardian:
    """A shell that ends processes and removes a directory once we are gone.

    It reads whom to end, a line each time that changes, from a pipe that only we hold: however we
    end, by `kill -9` too, the pipe closes and it acts. (PDEATHSIG would reach one process, and
    fires when the starting *thread* ends.)
    """

    SCRIPT = """
        while read -r line; do targets=$line; done
        for one in $targets; do kill -s TERM -- "$one"; kill -s CONT -- "$one"; done
        [ -z "$targets" ] || sleep 3
        for one in $targets; do kill -s KILL -- "$one"; done
        umount --lazy "$1/data"
        rm -rf -- "$1"
    """

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", self.SCRIPT, "guardian", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, targets: list[int]) -> None:
        """From now on, end these and no others: pids, and process groups as negative numbers."""
        self._pipe.write(f"{' '.join(map(str, targets))}\n".encode())
        self._pipe.flush()

    def dismiss(self) -> None:
        """Nothing is left to end; the directory is removed."""
        if self._pipe.closed:
            return
        self.watch([])
        self._pipe.close()
        self._process.wait()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin


def find(name: str, directories: tuple[str, ...] = ()) -> Path:
    """The newest `name` below the directories (patterns), else on PATH; raises MissingBinary."""

    def version(path: Path) -> list[int]:
        return [int(digits) for digits in re.findall(r"\d+", str(path))]

    for pattern in directories:
        found = list(Path("/").glob(f"{pattern.lstrip('/')}/{name}"))
        if found:
            return max(found, key=version)
    on_path = shutil.which(name)
    if on_path is None:
        raise MissingBinary(f"{name} is not installed (deploy/install-test-servers.sh installs it)")
    return Path(on_path).resolve() if directories else Path(on_path)


class SettableClock:
    """The wall clock of processes that are started with its environment. Raises MissingBinary."""

    def __init__(self, directory: Path) -> None:
        if sys.platform != "linux":
            raise MissingBinary("a clock that can be set is only made on Linux")
        self._offset = directory / "clock"
        library = directory / "clock.so"
        self.environment = {"LD_PRELOAD": str(library), "SETTABLE_CLOCK": str(self._offset)}
        self._offset.write_bytes(bytes(8))
        source = Path(__file__).with_name("settable_clock.c")
        command: list[str | Path] = [find("cc"), "-O2", "-Wall", "-Werror", "-fPIC", "-shared"]
        subprocess.run([*command, "-o", library, source], check=True)

    def set(self, offset_seconds: float) -> None:
        """From now on it is off by this much. Processes have it in memory: never half of it."""
        with self._offset.open("r+b", buffering=0) as file:
            file.write(int(offset_seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))


def can_mount() -> bool:
    """Whether a disk of a certain size can be made here."""
    return sys.platform == "linux" and os.geteuid() == 0 and _may_mount()


@lru_cache(maxsize=1)
def _may_mount() -> bool:
    """Root in a container may or may not."""
    with tempfile.TemporaryDirectory() as place:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return False
        subprocess.run(["umount", place], check=True)
        return True


def free_port() -> int:
    """A port of `PORTS` on which nothing listens."""
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"no free port from {PORTS.start} to {PORTS.stop}")


def is_listening(port: int) -> bool:
    """Whether something accepts connections on this port of ours."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], failure: str) -> None:
    """Poll until the condition holds; ServerError with `failure` if it does not in time."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ServerError(f"{failure} after {TIMEOUT_SECONDS:.0f} s")
        time.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """Whether the process still runs; one that only waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run_as_owner() -> dict[str, Any]:
    """How to start a server: PostgreSQL refuses to run as root, so root drops to nobody."""
    if os.geteuid() != 0:
        return {}
    owner = pwd.getpwnam("nobody")
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def give_to_owner(directory: Path) -> None:
    """Let the user who runs the servers read and write the directory and what is in it."""
    if os.geteuid() != 0:
        return
    for path in (directory, *directory.iterdir()):
        give_file_to_owner(path)


def give_file_to_owner(path: Path) -> None:
    """Let the user who runs the servers own the file."""
    if os.geteuid() == 0:
        owner = pwd.getpwnam("nobody")
        os.chown(path, owner.pw_uid, owner.pw_gid)
