"""Private installations of Muster: a database, a broker, and services as real processes.

    muster.start_executor()
    worker = muster.start_worker("w1")
    muster.ready()
    id = muster.submit("core.echo", {"text": "hello"})
    muster.wait_for_end(id)
    worker.kill()

What an action did is read from the journal that it wrote, what Muster says of it from the
database. Nothing survives `close()`, or the process that made the installation.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGCONT, SIGKILL, Signals
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

import psutil
import psycopg
from psycopg import sql

from tests import forked, once, servers
from tests.freezing import freeze

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parents[2]
PACKS = [
    str(REPOSITORY / "packs" / "core"),
    str(REPOSITORY / "packs" / "drill"),
    str(REPOSITORY / "packs" / "examples"),
    str(Path(__file__).parent / "pack"),
    str(Path(__file__).parent / "hostile"),
]

PATIENCE_SECONDS = 60.0
START_SECONDS = 120.0
"""To start or stop a service, or to migrate a database, on a machine that does much else."""
POLL_SECONDS = 0.02
VIRTUAL_HOSTS_AT_ONCE = 12

QUICK: dict[str, Any] = {
    "namespace": "scenario",
    "heartbeat_interval_seconds": 0.5,
    "staleness_multiplier": 20,
    "worker_queue_ttl_ms": 30_000,
    "start_grace_seconds": 10,
    "run_grace_seconds": 10,
    "cancel_grace_seconds": 1,
    "shutdown_timeout_seconds": 10,
    "maintenance_interval_seconds": 1,
    "no_worker_grace_seconds": 120,
    "publish_timeout_seconds": 3,
    "deadline_seconds": 300,
}
"""Settings of every installation, unless a test says otherwise. A time that tests wait for is
short; one that only must not pass is long, for a machine that does much else."""

SOON_LOST: dict[str, Any] = {"staleness_multiplier": 8}
"""For tests that wait until a worker is missed: after 4 s without a heartbeat."""

SIGNS_OF_READINESS = (" ready.", "beat: Starting", "Uvicorn running")

TERMINAL = {"completed", "failed", "timeout", "cancelled", "abandoned"}


class ClientError(Exception):
    """What the installation's client raised."""


TEMPLATE = "scenario_template"
VIRTUAL_HOST = "virtual host"
PASSWORD = "not a secret"


class Backend:
    """Where installations live: the embedded default, or PostgreSQL, RabbitMQ and Redis.

    Databases are copies of one that was migrated once, brokers are virtual hosts of one node. On
    servers each service has a login of its own, with the rights that `manage.py privileges` gives.
    """

    _numbers = itertools.count(1)
    """Of all backends: two may have the same servers."""

    _definitions_at: ClassVar[dict[servers.PostgresServer | None, dict[str, Any]]] = {}
    """Of each PostgreSQL that has the template already, from this backend or from another one."""

    def __init__(
        self,
        postgres: servers.PostgresServer | None = None,
        rabbit: servers.RabbitServer | None = None,
        redis: servers.RedisServer | None = None,
    ) -> None:
        self.postgres = postgres
        self.rabbit = rabbit
        self.redis = redis
        self.directory = Path(tempfile.mkdtemp(prefix="muster-template-"))
        self._virtual_hosts: list[str] = []
        self._definitions: dict[str, Any] = {}
        """Users of the broker, and their permissions in one virtual host."""
        self._template_is_made = False

    @property
    def name(self) -> str:
        return "embedded" if self.postgres is None else "servers"

    def environment(self, directory: Path) -> dict[str, str]:
        """The variables of a new installation, with a migrated database and an empty broker."""
        self._have_template()
        if self.postgres is None or self.rabbit is None:
            shutil.copy(self.directory / "muster.db", directory / "muster.db")
            return {}
        name = f"scenario_{next(self._numbers)}"
        self._statement(f"CREATE DATABASE {{}} TEMPLATE {TEMPLATE}", name)
        urls = {"DATABASE_URL": self._database_url(name), "BROKER_URL": self._broker_url()}
        return urls if self.redis is None else urls | {"REDIS_URL": self.redis.url}

    def _have_template(self) -> None:
        if self._template_is_made:
            return
        if self.postgres in self._definitions_at:
            self._definitions = self._definitions_at[self.postgres]
        else:
            self._make_template()
            if self.postgres is not None:
                self._definitions_at[self.postgres] = self._definitions
        self._template_is_made = True

    def login(self, service: str, environment: dict[str, str]) -> dict[str, str]:
        """The variables with which a service of an installation logs in; none where there are no
        logins, or none for its namespace."""
        namespace = environment.get("MUSTER_NAMESPACE")
        if self.postgres is None or namespace != QUICK["namespace"]:
            return {}
        user = f"{namespace}_{service}"
        return {
            "DATABASE_URL": _with_user(environment["DATABASE_URL"], user),
            "BROKER_URL": _with_user(environment["BROKER_URL"], f"{user}:{quote(PASSWORD)}"),
        }

    def restore(self) -> None:
        """Bring back what a test stopped or paused."""
        for server in (self.postgres, self.rabbit, self.redis):
            if server is not None:
                if server.is_running:
                    server.resume()
                server.start()

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _make_template(self) -> None:
        with once.shared(f"template, {self.name}") as kept:
            if self.postgres is not None:
                self._statement("CREATE DATABASE {}", TEMPLATE)
            if kept is None:
                self._migrate_template()
                return
            directory, is_full = kept
            if not is_full:
                self._migrate_template()
            self._exchange_template(directory, is_full=is_full)

    def _exchange_template(self, directory: Path, *, is_full: bool) -> None:
        """Take the template from there, or put it there for other processes."""
        if self.postgres is None:
            places = (directory, self.directory) if is_full else (self.directory, directory)
            shutil.copy(*(place / "muster.db" for place in places))
            return
        database, definitions = directory / "database.sql", directory / "definitions.json"
        if is_full:
            once.load(self._database_url(TEMPLATE), database)
            self._definitions = json.loads(definitions.read_text())
        else:
            once.dump(self._database_url(TEMPLATE), database)
            definitions.write_text(json.dumps(self._definitions))

    def _migrate_template(self) -> None:
        environment = {}
        if self.postgres is not None:
            environment["DATABASE_URL"] = self._database_url(TEMPLATE)
        client = Client(environment_of(self.directory, environment, QUICK), self.directory)
        try:
            client.call("prepare", pack_paths=PACKS)
            if self.postgres is not None:
                self._definitions = client.call(
                    "make_logins", virtual_host=VIRTUAL_HOST, password=PASSWORD
                )
        finally:
            client.close()
        if self.postgres is not None:
            self._write_down_sequences()
        else:
            # all of it in one file, to be copied
            with contextlib.closing(sqlite3.connect(self.directory / "muster.db")) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _write_down_sequences(self) -> None:
        """PostgreSQL logs the values of a sequence in advance. A copy of the template takes that
        over and logs none of its own at first: killed, it would give the same values again."""
        with psycopg.connect(self._database_url(TEMPLATE), autocommit=True) as connection:
            connection.execute("""
                SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, last_value)
                FROM pg_sequences WHERE last_value IS NOT NULL
            """)

    def _statement(self, statement: str, name: str) -> None:
        assert self.postgres is not None
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def _database_url(self, name: str) -> str:
        assert self.postgres is not None
        return self.postgres.url.rpartition("/")[0] + f"/{name}"

    def new_virtual_host(self) -> str:
        """The URL of an empty virtual host, for whoever may do everything."""
        self._have_template()
        return self._broker_url()

    def _broker_url(self) -> str:
        assert self.rabbit is not None
        if not self._virtual_hosts:
            first = next(self._numbers)
            self._virtual_hosts = [f"scenario_{first}_{n}" for n in range(VIRTUAL_HOSTS_AT_ONCE)]
            self.make_virtual_hosts(*self._virtual_hosts)
        return self.rabbit.url.rpartition("//")[0] + "/" + self._virtual_hosts.pop()

    def make_virtual_hosts(self, *wanted: str) -> None:
        """With one call: `rabbitmqctl` takes a second to start, whatever it does."""
        assert self.rabbit is not None
        everything = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
        permissions = [everything, *self._definitions["permissions"]]
        topics = self._definitions["topic_permissions"]
        exchanges = self._definitions["exchanges"]
        definitions = {
            "vhosts": [{"name": name} for name in wanted],
            "users": self._definitions["users"],
            "permissions": [{**each, "vhost": at} for at in wanted for each in permissions],
            "exchanges": [{**each, "vhost": at} for at in wanted for each in exchanges],
            "topic_permissions": [{**each, "vhost": at} for at in wanted for each in topics],
        }
        self.import_definitions(json.dumps(definitions))

    def close_connections(self, broker_url: str) -> None:
        """Let RabbitMQ close all connections to this virtual host."""
        assert self.rabbit is not None
        host = broker_url.rsplit("/", 1)[1]
        self.rabbit.control("close_all_connections", "--vhost", host, "a test wants it")

    def import_definitions(self, definitions: str) -> None:
        assert self.rabbit is not None
        path = self.rabbit.directory / "definitions.json"
        path.write_text(definitions)
        self.rabbit.control("import_definitions", str(path))


def _with_user(urls: str, user: str) -> str:
    """The URL for this user; each of several that are joined by `;`."""
    each = [urlsplit(url) for url in urls.split(";")]
    hosts = [parts.netloc.rpartition("@")[2] for parts in each]
    return ";".join(
        parts._replace(netloc=f"{user}@{host}").geturl()
        for parts, host in zip(each, hosts, strict=True)
    )


def environment_of(
    directory: Path, servers: dict[str, str], settings: dict[str, Any]
) -> dict[str, str]:
    """All variables of an installation's processes: nothing of ours but PATH and LANG."""
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(directory),
        "TMPDIR": str(temporary),
        "PYTHONUNBUFFERED": "1",
        "MUSTER_DATA_DIR": str(directory),
        **{f"MUSTER_{name.upper()}": str(value) for name, value in settings.items()},
        **servers,
    }


class Client:
    """The process of `client.py`, which has this installation's settings."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs, (directory / "client.log").open("ab") as log:
            self.process = forked.shared().start(
                ["-m", "tests.scenarios.client"],
                environment=environment,
                output=log.fileno(),
                link=theirs,
            )
        self._link = Connection(ours.detach())
        self._is_up = False
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        """Threads of a storm call, too."""

    def call(self, name: str, /, **keywords: Any) -> Any:
        """Call a function of `client.py`. Raises ClientError with what it raised."""
        with self._lock:
            number = next(self._numbers)
            self._link.send((number, name, keywords))
            returned, answer = self._answer_to(number, name)
        if not returned:
            raise ClientError(f"{name}: {answer}")
        return answer

    def _answer_to(self, number: int, name: str) -> tuple[bool, Any]:
        """Whether the call returned, and what; answers to calls that were given up are dropped."""
        # the first answer waits for the process to start, too
        is_long = name == "prepare" or not self._is_up
        seconds = START_SECONDS if is_long else PATIENCE_SECONDS
        while self._link.poll(seconds):
            answered, *answer = self._link.recv()
            self._is_up = True
            if answered == number:
                returned, value = answer
                return returned, value
        raise ClientError(f"{name} did not answer within {seconds:.0f} s")

    def close(self) -> None:
        self._link.close()
        self.process.kill()  # its orderly end would take a second
        self.process.wait()


class Service:
    """One service of an installation: a process, and the processes below it."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes] | forked.Process, log: Path
    ) -> None:
        self.name = name
        self.process = process
        self.log_path = log
        self.seen: set[psutil.Process] = set()
        """Every process that ever was in its tree when somebody looked."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def tree(self) -> list[psutil.Process]:
        """Parent first: it must not start children while the others are being stopped."""
        try:
            parent = psutil.Process(self.pid)
            found = [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            found = []
        self.seen.update(found)
        return found

    def signal(self, number: Signals) -> None:
        """Signal its first process alone."""
        self.process.send_signal(number)

    def signal_tree(self, number: Signals) -> None:
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """`kill -9` of its first process. What it leaves behind is its affair."""
        self.tree()
        self.process.kill()
        self.process.wait()

    def kill_tree(self) -> None:
        """`kill -9` of every process at once, as when the machine goes."""
        self.signal_tree(SIGKILL)
        self.process.wait()

    def pause(self) -> None:
        """Stop its first process alone."""
        self.tree()
        freeze([psutil.Process(self.pid)])

    def pause_tree(self) -> None:
        freeze(self.tree())

    @contextlib.contextmanager
    def pool_processes_stopped(self) -> Iterator[None]:
        """A worker's pool accepts nothing meanwhile. Its processes are forks of the first one."""
        worker = psutil.Process(self.pid)
        forks = [each for each in worker.children() if each.cmdline() == worker.cmdline()]
        freeze(forks)
        try:
            yield
        finally:
            for process in forks:
                process.send_signal(SIGCONT)

    def resume_tree(self) -> None:
        for process in reversed(self.tree()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(SIGCONT)

    def exit_status(self, *, within_seconds: float = START_SECONDS) -> int:
        """Wait until it has ended; its exit status, negative for a signal."""
        try:
            return self.process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {within_seconds} s\n{self.log()[-3000:]}"
            ) from None

    def view_of(self, path: Path) -> Path:
        """This path as its processes see it, should they have a mount namespace of their own."""
        return Path(f"/proc/{self.pid}/root{path}")

    def is_up(self) -> bool:
        """Whether Celery or uvicorn says that it is ready; AssertionError if it has ended."""
        assert self.process.poll() is None, f"{self.name} ended:\n{self.log()[-3000:]}"
        log = self.log()
        return any(sign in log for sign in SIGNS_OF_READINESS)

    def close(self) -> None:
        self.tree()
        for process in self.seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Note:
    """A line of the journal: what an action says of itself."""

    event: str
    label: str
    execution: str | None
    attempt: int
    pid: int
    at: float


class Journal:
    """The file to which the actions of the test pack write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def notes(self, *, event: str | None = None, label: str | None = None) -> list[Note]:
        if not self.path.exists():
            return []
        # the last line may still be on its way
        lines = self.path.read_text().splitlines(keepends=True)
        notes = [Note(**json.loads(line)) for line in lines if line.endswith("\n")]
        return [
            note
            for note in notes
            if event in (None, note.event) and (label is None or note.label == label)
        ]

    def starts(self, label: str | None = None) -> list[Note]:
        return self.notes(event="start", label=label)

    def ends(self, label: str | None = None) -> list[Note]:
        return self.notes(event="end", label=label)


class Installation:
    """One installation and its services. `settings` differ from QUICK where a test needs it;
    without `quick` all others are those that Muster has by itself. `beside` is another installation
    that has the same broker. Without `logins`, all services have the same one, which may do
    everything: a worker then needs no executor to find its exchanges. Services are forks of a
    process that has loaded Muster, unless `is_forked` is False: then, and with a wrapper or a
    variable that Python or the loader reads at the start, they are programs of their own."""

    def __init__(
        self,
        backend: Backend,
        *,
        quick: bool = True,
        beside: Installation | None = None,
        logins: bool = True,
        is_forked: bool = True,
        **settings: Any,
    ) -> None:
        self.backend = backend
        self.is_forked = is_forked
        self.has_logins = logins
        self.directory = Path(tempfile.mkdtemp(prefix="muster-scenario-"))
        self._guardian = servers.Guardian(self.directory)
        urls = backend.environment(self.directory)
        if beside is not None:
            urls["BROKER_URL"] = beside.broker_url
        self.settings = (QUICK if quick else {}) | settings
        self.environment = environment_of(self.directory, urls, self.settings)
        self.journal = Journal(self.directory / "journal")
        self.services: list[Service] = []
        self.report_then = ""
        """What was to be reported when a wait was given up."""
        self.client = Client(self.environment, self.directory)

    @property
    def broker_url(self) -> str:
        embedded = f"sqlitemq:///{self.directory / 'broker.db'}"
        return self.environment.get("BROKER_URL", embedded)

    # ---- services ----

    def start(
        self, name: str, *command: str, wrapper: Sequence[str] = (), **environment: str
    ) -> Service:
        """Start `python <command>` in this installation; `wrapper` is a command that becomes the
        one after it."""
        log = self.directory / f"{name}.{len(self.services)}.log"
        variables = self.environment | environment
        is_forked = self.is_forked and not wrapper and not forked.matters_at_start(variables)
        process: subprocess.Popen[bytes] | forked.Process
        with log.open("ab") as output:
            if is_forked:
                process = forked.shared().start(
                    command, environment=variables, output=output.fileno()
                )
            else:
                process = subprocess.Popen(
                    [*wrapper, sys.executable, *command],
                    env=variables,
                    cwd=REPOSITORY,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        service = Service(name, process, log)
        self.services.append(service)
        self._guardian.watch([-service.pid for service in self.services])
        return service

    def login(self, service: str) -> dict[str, str]:
        """The variables with which a service logs in at the servers."""
        return self.backend.login(service, self.environment) if self.has_logins else {}

    def renew_rights(self) -> None:
        """Give the logins the rights that the present apps need, as who adds one does."""
        if self.login("executor"):
            self.command("privileges", "postgresql", "--apply")
            self.backend.import_definitions(self.command("privileges", "rabbitmq"))

    def service(self, name: str) -> Service:
        """The service of this name that was started last."""
        return next(service for service in reversed(self.services) if service.name == name)

    def start_executor(self, name: str = "executor", **environment: str) -> Service:
        login = self.login("executor") | environment
        return self.start(name, "manage.py", "executor", "--name", name, **login)

    def start_sensor(self, name: str = "sensor", **environment: str) -> Service:
        login = self.login("executor") | environment
        return self.start(name, "manage.py", "sensor", "--name", name, **login)

    def start_api(self, port: int, **environment: str) -> Service:
        login = self.login("api") | environment
        return self.start("api", "manage.py", "api", "--port", str(port), **login)

    def serve(self, **environment: str) -> str:
        """Start an API process; returns where it listens once it is ready."""
        port = servers.free_port()
        self.start_api(port, **environment)
        return f"http://127.0.0.1:{port}"

    def start_notifier(self, name: str = "notifier", **environment: str) -> str:
        """Start a notifier; returns where it listens once it is ready."""
        port = servers.free_port()
        login = self.login("notifier") | environment
        self.start(name, "manage.py", "notifier", "--port", str(port), **login)
        return f"http://127.0.0.1:{port}"

    def command(self, *arguments: str) -> str:
        """Run `manage.py <arguments>` to its end; what it wrote to its output."""
        command = ["manage.py", *arguments]
        with tempfile.TemporaryFile("w+") as output:
            if forked.matters_at_start(self.environment):
                status = subprocess.call(
                    [sys.executable, *command], env=self.environment, cwd=REPOSITORY, stdout=output
                )
            else:
                status = (
                    forked.shared()
                    .start(
                        command,
                        environment=self.environment,
                        output=output.fileno(),
                        errors=sys.stderr.fileno(),
                    )
                    .wait()
                )
            if status != 0:
                raise subprocess.CalledProcessError(status, command)
            output.seek(0)
            return output.read()

    def token(self, name: str, role: str = "admin") -> str:
        """Make an API token of a service account of its own, which has this role; its text."""
        text: str = self.client.call("token", name=name, role=role)
        return text

    def start_beat(self, loglevel: str = "INFO") -> Service:
        arguments = ["--pidfile", str(self.directory / "beat.pid"), "--loglevel", loglevel]
        celery = ("-m", "celery", "-A", "settings", "beat")
        return self.start("beat", *celery, *arguments, **self.login("beat"))

    def start_worker(
        self,
        name: str = "w1",
        *,
        concurrency: int = 2,
        pool: str = "",
        queues: str = "",
        options: Sequence[str] = (),
        wrapper: Sequence[str] = (),
        **environment: str,
    ) -> Service:
        arguments = ["--name", name, "--concurrency", str(concurrency)]
        arguments += options
        arguments += ["--pool", pool] if pool else []
        arguments += ["--queues", queues] if queues else []
        login = self.login("worker") | environment
        return self.start(name, "manage.py", "worker", *arguments, wrapper=wrapper, **login)

    def start_worker_without(self, folder: Path, name: str, *, concurrency: int = 2) -> Service:
        """Start a worker on a host that lacks what is in this folder: in a mount namespace of its
        own, where the folder is empty. `Service.view_of` leads to it from outside."""
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        hide = 'mount -t tmpfs none "$0" && exec "$@"'
        wrapper = ["unshare", "--mount", *as_root, "sh", "-c", hide, str(folder)]
        arguments = ["--name", name, "--concurrency", str(concurrency)]
        login = self.login("worker")
        return self.start(name, "manage.py", "worker", *arguments, wrapper=wrapper, **login)

    def ready(self) -> None:
        """Wait until every service that runs is ready, and may be given work if it is a worker."""
        running = [service for service in self.services if service.process.poll() is None]
        for what, look in (
            ("services are not ready", lambda: all(service.is_up() for service in running)),
            # Celery may say that it is ready before the row does
            ("workers are not admitted", lambda: not self._names_starting(running)),
        ):
            self.wait_for(look, what, within_seconds=START_SECONDS)

    def _names_starting(self, services: Iterable[Service]) -> set[str]:
        rows = self.client.call("all_workers")
        starting = {row.name for row in rows if "starting" in row.failed_checks}
        return starting & {service.name for service in services}

    # ---- what a client does and sees ----

    def submit(
        self, action_ref: str, parameters: dict[str, Any] | None = None, **more: Any
    ) -> UUID:
        return self.submit_many([{"parameters": parameters or {}, **more}], action_ref)[0]

    def submit_many(self, news: list[dict[str, Any]], action_ref: str) -> list[UUID]:
        asked = [{"action_ref": action_ref, **new} for new in news]
        ids: list[UUID] = self.client.call("submit", news=asked)
        return ids

    def submit_note(self, label: str = "", **more: Any) -> UUID:
        """Ask for an action of the test pack: see `_note`."""
        return self.submit_notes({"label": label, **more})[0]

    def submit_notes(self, *notes: dict[str, Any]) -> list[UUID]:
        """Ask for several with one request: a worker is sent the second together with the first,
        while nobody knows yet that the first takes long."""
        ids: list[UUID] = self.client.call("submit", news=[self._note(**note) for note in notes])
        return ids

    def _note(
        self,
        *,
        label: str,
        action: str = "note",
        seconds: float = 0,
        is_gated: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """A request for an action of the test pack; `busy` and `children` are its parameters, too.
        One that is gated goes on until `open_gate`, however long that takes."""
        parameters = {"journal": str(self.journal.path), "label": label, "seconds": seconds}
        if action == "note_shell":
            parameters |= {"children": 0, "gate": ""}
        if is_gated:
            parameters["gate"] = str(self._gate(label))
        for name in ("busy", "children"):
            if name in more:
                parameters[name] = more.pop(name)
        return {"action_ref": f"scenario.{action}", "parameters": parameters, **more}

    def open_gate(self, label: str) -> None:
        """Let the gated action of this label end."""
        self._gate(label).touch()

    def _gate(self, label: str) -> Path:
        return self.directory / f"gate of {label}"

    def cancel(self, id: UUID) -> str:
        status: str = self.client.call("cancel", id=id)
        return status

    def retire(self, worker: str) -> None:
        """Retire a worker that has just ended."""
        self.wait_for(
            lambda: self.client.call("order", verb="retire", worker=worker) is None,
            f"{worker} is not retired",
        )

    def executions(self, ids: Sequence[UUID] | None = None) -> dict[UUID, SimpleNamespace]:
        """All of them, or these."""
        return {row.id: row for row in self.client.call("execution_rows", ids=ids)}

    def execution(self, id: UUID) -> Any:
        return self.executions([id])[id]

    def events(self, id: UUID) -> list[SimpleNamespace]:
        rows: list[SimpleNamespace] = self.client.call("events", id=id)
        return rows

    def story(self, id: UUID) -> list[str]:
        """The history of an execution: its events, in order."""
        return [event.event for event in self.events(id)]

    def worker(self, name: str) -> Any:
        found = [row for row in self.client.call("all_workers") if row.name == name]
        return found[0] if found else SimpleNamespace(id=None, status="", incarnation=0)

    def changes_of(self, worker: str) -> list[str]:
        """What happened to a worker, in order; that a busy machine made it unfit for a moment is
        left out."""
        kinds = [event.kind for event in self.client.call("worker_events", worker=worker)]
        return [kind for kind in kinds if kind not in ("unhealthy", "healthy")]

    def dlq_entries(self) -> list[SimpleNamespace]:
        rows: list[SimpleNamespace] = self.client.call("dlq_entries")
        return rows

    def processes_of(self, id: UUID) -> list[psutil.Process]:
        """What the actions of an execution started and still runs, found by mark or folder."""
        return [process for process in self._action_processes() if _is_of(process, str(id))]

    # ---- waiting ----

    def wait_for(
        self,
        look: Callable[[], T],
        what: str,
        *,
        within_seconds: float = PATIENCE_SECONDS,
    ) -> T:
        """Look until there is something; AssertionError with the installation's state if not."""
        ends_at = time.monotonic() + within_seconds
        while True:
            try:
                if found := look():
                    return found
                trouble = ""
            except ClientError as error:  # the database may be away for a moment
                trouble = f" ({error})"
            if time.monotonic() > ends_at:
                self.report_then = self.report()
                raise AssertionError(f"after {within_seconds} s: {what}{trouble}")
            time.sleep(POLL_SECONDS)

    def wait_for_status(
        self, id: UUID, *statuses: str, within_seconds: float = PATIENCE_SECONDS
    ) -> Any:
        def look() -> Any:
            row = self.execution(id)
            return row if row.status in statuses else None

        return self.wait_for(
            look, f"{id} is not {' or '.join(statuses)}", within_seconds=within_seconds
        )

    def wait_for_end(self, id: UUID, *, within_seconds: float = PATIENCE_SECONDS) -> Any:
        return self.wait_for_status(id, *TERMINAL, within_seconds=within_seconds)

    def wait_for_ends(
        self, ids: Iterable[UUID], *, within_seconds: float = PATIENCE_SECONDS
    ) -> list[Any]:
        """Wait until all of them are over; their rows in the same order."""
        wanted = list(ids)

        def look() -> list[Any] | None:
            rows = self.executions(wanted)
            found = [rows[id] for id in wanted]
            return found if all(row.status in TERMINAL for row in found) else None

        ended = self.wait_for(look, "some are not over", within_seconds=within_seconds)
        assert ended is not None
        return ended

    def workers_of_four(self) -> set[int]:
        """The workers that run four actions asked for at once: all that may run one, if they are
        no more than four."""
        rows = self.wait_for_ends(self.submit_many([{}] * 4, "core.noop"))
        return {row.worker_id for row in rows}

    def wait_until_all_goes_to(self, *names: str) -> None:
        """Wait until the executor, which looks at the fleet each second, gives work to these
        workers alone, and to each of them."""
        wanted = {self.worker(name).id for name in names}
        self.wait_for(lambda: self.workers_of_four() == wanted, f"not all goes to {names}")

    def wait_until_active(self, *names: str) -> None:
        self.wait_for(
            lambda: all(self.worker(name).status == "active" for name in names),
            f"{names} are not active",
            within_seconds=START_SECONDS,
        )

    def wait_for_start(self, label: str, *, attempt: int | None = None) -> Note:
        def look() -> Note | None:
            starts = self.journal.starts(label)
            found = [note for note in starts if attempt in (None, note.attempt)]
            return found[-1] if found else None

        note = self.wait_for(look, f"{label!r} did not start")
        assert note is not None
        return note

    # ---- what must hold, whatever happened ----

    def check_lives(self) -> None:
        """Every service of the shared installation still is in its first life."""
        ended = [service.name for service in self.services if service.process.poll() is not None]
        assert not ended, f"ended: {ended}"
        assert {row.incarnation for row in self.client.call("all_workers")} == {1}

    def check_each_started_once(self, ids: Iterable[UUID]) -> None:
        started = Counter(note.execution for note in self.journal.starts())
        assert {started[str(id)] for id in ids} == {1}

    def check_accounts(self) -> None:
        """Every execution that is over has exactly one terminal event, attempts only grow, and no
        attempt was started twice."""
        for id, (status, events) in self.client.call("accounts").items():
            ends = [event for event in events if event.to_status in TERMINAL]
            assert len(ends) == (status in TERMINAL), f"{id}: {ends}"
            assert not ends or events[-1] == ends[0], f"{id}: something followed its end"
            assert all(a.to_status == b.from_status for a, b in itertools.pairwise(events)), events
            attempts = [event.attempt for event in events]
            assert attempts == sorted(attempts), events
        started = Counter(
            (note.execution, note.attempt) for note in self.journal.starts() if note.execution
        )
        twice = [attempt for attempt, count in started.items() if count > 1]
        assert not twice, f"started more than once: {twice}"

    def report(self) -> str:
        """Executions, their histories, workers and the ends of all logs."""
        parts = []
        try:
            for id, row in list(self.executions().items())[-20:]:
                parts.append(
                    f"{id} {row.action_ref} {row.status} attempt {row.attempt} {row.reason} "
                    f"{row.wait_reason} start_by {row.start_by} {row.result}"
                )
                parts += [
                    f"    {e.at:%H:%M:%S.%f} {e.event} -> {e.to_status} #{e.attempt} "
                    f"by {e.actor} {e.reason}"
                    for e in self.events(id)
                ]
            parts += [
                f"worker {w.id} {w.name} {w.status} ({w.status_reason}) life {w.incarnation} "
                f"{w.heartbeat_at}"
                for w in self.client.call("all_workers")
            ]
        except (ClientError, EOFError, OSError) as error:
            parts.append(f"state unknown: {error!r}")
        parts += [f"journal {note}" for note in self.journal.notes()[-20:]]
        for log in sorted(self.directory.glob("*.log")):
            parts.append(f"----- {log.name}\n{log.read_text(errors='replace')[-6000:]}")
        return "\n".join(parts)

    # ---- the end ----

    def close(self) -> None:
        """End every process, also those that actions left, and remove all files."""
        for service in reversed(self.services):
            service.close()
        for process in self._action_processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.client.close()
        self._guardian.dismiss()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _action_processes(self) -> list[psutil.Process]:
        """What was started by actions here: in our temporary folder, or marked and told so."""
        found = []
        temporary = str(self.directory / "tmp")
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                marks = process.environ()
                is_ours = marks.get("TMPDIR", "").startswith(temporary)
                is_here = process.cwd().startswith(temporary)
                if (is_here or (is_ours and "MSTR_EXECUTION_ID" in marks)) and servers.is_alive(
                    process
                ):
                    found.append(process)
        return found


def _is_of(process: psutil.Process, id: str) -> bool:
    try:
        return process.environ().get("MSTR_EXECUTION_ID") == id or id in process.cwd()
    except (psutil.Error, OSError):
        return False
