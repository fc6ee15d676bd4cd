"""What breaks: each fault is a method that breaks one thing and says what it was."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import uuid
from collections.abc import Iterator
from signal import SIGKILL
from typing import Any

import amqp
import kombu
import psutil
import psycopg

from orchestrator import sqlite_broker  # noqa: F401 - makes sqlitemq:// known
from tests import servers
from tests.chaos import evidence, garbage
from tests.chaos.checker import Fault
from tests.chaos.keeper import Keeper
from tests.scenarios.installation import QUICK, Installation, Service

EVERYWHERE = (
    "kill pool child",
    "kill worker",
    "kill executor",
    "kill beat",
    "kill api",
    "freeze worker",
    "delete worker queue",
    "duplicate dispatches",
    "garbage on every queue",
)
ON_SERVERS = (
    "stop broker",
    "kill broker",
    "restart database",
    "close all connections",
    "cut redis",
)

FIND_SECONDS = 20.0
COPIES = 3


class NotNow(Exception):
    """What was to be broken was not there: nothing happened."""


NOTHING_BROKEN = (
    NotNow,
    psutil.NoSuchProcess,
    psycopg.OperationalError,
    servers.ServerError,
    kombu.exceptions.KombuError,
    amqp.exceptions.AMQPError,
    OSError,
)


class Breaker:
    """Breaks things in one installation and keeps account of it."""

    def __init__(
        self,
        muster: Installation,
        keeper: Keeper,
        database: evidence.Database,
        *,
        staleness_seconds: float,
        seed: int,
    ) -> None:
        self.muster, self.keeper, self.database = muster, keeper, database
        self.staleness_seconds = staleness_seconds
        self.faults: list[Fault] = []
        self.outages: list[tuple[float, float]] = []
        self._rng = random.Random(seed)
        self._thaws: list[threading.Thread] = []
        self._whole_at = 0.0

    @property
    def kinds(self) -> tuple[str, ...]:
        return EVERYWHERE if self.muster.backend.rabbit is None else EVERYWHERE + ON_SERVERS

    def cause(self, kind: str) -> bool:
        """Let a fault happen; False if there was nothing to break."""
        at, self._whole_at = time.time(), 0.0
        try:
            detail = getattr(self, kind.replace(" ", "_"))()
        except NOTHING_BROKEN:
            return False
        self.faults.append(Fault(kind, at, max(time.time(), self._whole_at), detail))
        return True

    def finish(self) -> None:
        """Wait until what was frozen is awake."""
        for thaw in self._thaws:
            thaw.join()

    # ---- processes ----

    def kill_pool_child(self) -> str:
        worker = self._worker()
        children = psutil.Process(worker.pid).children()
        if not children:
            raise NotNow
        child = self._rng.choice(children)
        child.send_signal(SIGKILL)
        return f"{child.pid} of {worker.name}"

    def kill_worker(self) -> str:
        worker = self._worker()
        if self._rng.random() < 0.5:
            worker.kill()
            return f"{worker.name}, its first process"
        worker.kill_tree()
        return f"{worker.name}, all of it"

    def kill_executor(self) -> str:
        return self._kill("executor")

    def kill_beat(self) -> str:
        return self._kill("beat")

    def kill_api(self) -> str:
        return self._kill("api")

    def freeze_worker(self) -> str:
        """SIGSTOP its whole tree until it is believed to be dead, then SIGCONT."""
        worker = self._worker()
        worker.pause_tree()
        seconds = self.staleness_seconds + self._rng.uniform(1.5, 4.0)
        self._whole_at = time.time() + seconds

        def thaw() -> None:
            time.sleep(seconds)
            worker.resume_tree()

        self._thaws.append(threading.Thread(target=thaw, daemon=True))
        self._thaws[-1].start()
        return f"{worker.name} for {seconds:.1f} s"

    def _kill(self, name: str) -> str:
        service = self._find(name)
        service.kill()
        return str(service.pid)

    def _worker(self) -> Service:
        return self._find(*self._rng.sample(self.keeper.workers, k=len(self.keeper.workers)))

    def _find(self, *names: str) -> Service:
        """The first of these that is up, when one is."""
        until = time.monotonic() + FIND_SECONDS
        while time.monotonic() < until:
            for name in names:
                service = self.keeper.running(name)
                if service is not None and not _is_frozen(service):
                    return service
            time.sleep(0.05)
        raise NotNow

    # ---- servers ----

    def stop_broker(self) -> str:
        rabbit = self.muster.backend.rabbit
        assert rabbit is not None
        rabbit.stop()
        return self._start_after_pause(rabbit)

    def kill_broker(self) -> str:
        rabbit = self.muster.backend.rabbit
        assert rabbit is not None
        rabbit.kill()
        return self._start_after_pause(rabbit)

    def restart_database(self) -> str:
        postgres = self.muster.backend.postgres
        assert postgres is not None
        at = time.time()
        how = self._rng.choice([postgres.stop, postgres.kill])
        how()
        detail = self._start_after_pause(postgres)
        self.outages.append((at, time.time()))
        return f"{how.__name__}, {detail}"

    def cut_redis(self) -> str:
        """Stopped, killed, or alive and deaf, which takes the longest to notice."""
        redis = self.muster.backend.redis
        assert redis is not None
        how = self._rng.choice([redis.stop, redis.kill, redis.pause])
        how()
        try:
            return f"{how.__name__}, {self._start_after_pause(redis)}"
        finally:
            redis.resume()

    def close_all_connections(self) -> str:
        rabbit = self.muster.backend.rabbit
        assert rabbit is not None
        rabbit.control(
            "close_all_connections", "--vhost", evidence.virtual_host(self.muster), "chaos"
        )
        return ""

    def _start_after_pause(self, server: servers.Server) -> str:
        seconds = self._rng.uniform(0.5, 3.0)
        time.sleep(seconds)
        server.start()
        return f"down for {seconds:.1f} s"

    # ---- messages ----

    def delete_worker_queue(self) -> str:
        """With all messages in it, and under its consumer."""
        [name] = self._rng.sample(_worker_queues(self.database, "executions"), k=1)
        with self.channel() as channel:
            channel.queue_delete(name)
        return name

    def duplicate_dispatches(self) -> str:
        """Copies of messages for what waits, runs or is over, to the right and a wrong worker."""
        rows = self.database.select(
            "SELECT id, attempt, worker_id FROM orchestrator_execution WHERE attempt > 0 "
            "ORDER BY ended_at IS NOT NULL, created_at DESC LIMIT 12"
        )
        if not rows:
            raise NotNow
        workers = [row["worker_id"] for row in rows]
        with self.channel() as channel:
            for row in rows:
                execution = str(uuid.UUID(str(row["id"])))
                for worker in (*[row["worker_id"]] * COPIES, self._rng.choice(workers)):
                    for attempt in {row["attempt"], max(1, row["attempt"] - 1)}:
                        _dispatch(channel, execution, attempt, worker)
        return f"of {len(rows)} executions"

    def garbage_on_every_queue(self) -> str:
        names = queue_names(self.database)
        with self.channel() as channel:
            for name in names:
                for _ in range(COPIES):
                    put(channel, name, garbage.make(self._rng))
        return f"on {len(names)} queues"

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        with channel_of(self.muster) as channel:
            yield channel


def queue_names(database: evidence.Database) -> list[str]:
    """Every queue that the topology promises."""
    namespace = QUICK["namespace"]
    shared = ("execution.requests", "execution.completed", "maintenance", "dlx")
    return [
        *(f"{namespace}.{name}.queue" for name in shared),
        *_worker_queues(database, "executions"),
        *_worker_queues(database, "cancel"),
    ]


def _worker_queues(database: evidence.Database, what: str) -> list[str]:
    workers = database.select("SELECT id FROM orchestrator_worker ORDER BY id")
    return [f"worker.{row['id']}.{what}" for row in workers]


@contextlib.contextmanager
def channel_of(muster: Installation) -> Iterator[Any]:
    """A channel to the broker of an installation, from outside of it."""
    embedded = f"sqlitemq:///{muster.directory / 'broker.db'}"
    url = muster.environment.get("BROKER_URL", embedded)
    with kombu.Connection(url, connect_timeout=5) as connection:
        yield connection.default_channel


def put(channel: Any, queue: str, thing: garbage.Garbage) -> None:
    """Put a message straight into a queue."""
    properties: dict[str, Any] = {"delivery_mode": 2}
    message = channel.prepare_message(
        thing.body,
        headers=dict(thing.headers),
        content_type=thing.content_type,
        content_encoding=thing.content_encoding,
        properties=properties,
    )
    channel.basic_publish(message, exchange="", routing_key=queue)


def _dispatch(channel: Any, execution: str, attempt: int, worker: int) -> None:
    body = json.dumps([[], {"execution_id": execution, "attempt": attempt}, {}]).encode()
    headers = garbage.celery_headers("muster.run", f"{execution}.{attempt}")
    put(channel, f"worker.{worker}.executions", garbage.Garbage(body, headers))


def _is_frozen(service: Service) -> bool:
    try:
        return psutil.Process(service.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return True
