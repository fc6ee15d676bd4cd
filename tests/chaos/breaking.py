"""What all faults share: what may be broken, for how long, and how it is mended again."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import amqp
import httpx
import kombu
import psutil
import psycopg

import settings  # noqa: F401 - makes sqlitemq:// known
from tests import servers
from tests.chaos import evidence, garbage
from tests.chaos.facts import Fault, Terms
from tests.chaos.keeper import Keeper
from tests.chaos.network import Network
from tests.scenarios.installation import ClientError, Installation, Service

FIND_SECONDS = 20.0

SETTLED_SECONDS = 15.0
"""What a single executor needs for what was left undone while there was none."""


class NotNow(Exception):
    """What was to be broken was not there: nothing happened."""


NOTHING_BROKEN = (
    NotNow,
    ClientError,
    httpx.HTTPError,
    psutil.NoSuchProcess,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    servers.ServerError,
    kombu.exceptions.KombuError,
    amqp.exceptions.AMQPError,
    OSError,
)


@dataclass(frozen=True)
class Broken:
    """What a fault says of itself."""

    detail: str = ""
    workers: frozenset[str] = frozenset()
    seconds: float = 0.0
    """How long it lasts from now on, if it is mended later."""
    executions: frozenset[str] = frozenset()


class Breaking:
    """Breaks things in one installation and keeps account of it."""

    def __init__(
        self,
        muster: Installation,
        keeper: Keeper,
        database: evidence.Database,
        *,
        network: Network | None,
        terms: Terms,
        trace: str,
        seed: int,
    ) -> None:
        self.muster, self.keeper, self.database = muster, keeper, database
        self.network, self.terms, self.trace = network, terms, trace
        self.api: Callable[[], httpx.Client]
        """A client of the API."""
        self.ghost = 0
        """The id of a worker that has a queue and never comes."""
        self.own: dict[str, Callable[[], Broken]] = {}
        """Faults of a campaign of its own, by kind."""
        self._stepping = threading.Lock()
        self.faults: list[Fault] = []
        self.outages: list[tuple[float, float]] = []
        self.neighbours: dict[str, str] = {}
        self._rng = random.Random(seed)
        self._mending: list[threading.Thread] = []
        self._over = threading.Event()

    @property
    def everybody(self) -> frozenset[str]:
        """All workers."""
        return frozenset(self.keeper.workers)

    @property
    def namespace(self) -> str:
        return str(self.muster.settings.get("namespace", "muster"))

    def cause(self, kind: str) -> bool:
        """Let a fault happen; False if there was nothing to break."""
        at = time.time()
        method = kind.replace(" ", "_").replace("-", "_")
        try:
            broken: Broken = (self.own.get(kind) or getattr(self, method))()
        except NOTHING_BROKEN:
            return False
        until = time.time() + broken.seconds
        self.faults.append(Fault(kind, at, until, broken.detail, broken.workers, broken.executions))
        return True

    def finish(self) -> None:
        """Wait until all that is mended later is whole again."""
        for mending in self._mending:
            mending.join()

    def mend(self) -> None:
        """Mend at once whatever is still broken, as nobody will need it any more."""
        self._over.set()
        self.finish()

    # ---- for the faults ----

    def _for_a_while(self, seconds: float, mend: Callable[[], object]) -> None:
        """Mend later, beside all that goes on."""

        def wait() -> None:
            self._over.wait(seconds)
            with contextlib.suppress(*NOTHING_BROKEN):
                mend()

        self._mending.append(threading.Thread(target=wait, daemon=True))
        self._mending[-1].start()

    def _pause(self, shortest: float, longest: float) -> float:
        """Wait for some time between these; returns how long it was to be."""
        seconds = self._rng.uniform(shortest, longest)
        self._over.wait(seconds)
        return seconds

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        """The database cannot be written."""
        at = time.time()
        try:
            yield
        finally:
            self.outages.append((at, time.time()))

    def _worker(self) -> Service:
        return self._find(*self._rng.sample(self.keeper.workers, k=len(self.keeper.workers)))

    def _executor(self) -> Service:
        """One that may be disturbed: another works meanwhile, or it has worked for a while.

        Nothing is promised without any executor, and a new one has much to do. Raises NotNow.
        """
        until = time.monotonic() + FIND_SECONDS
        while time.monotonic() < until:
            fine = self.executors_at_work()
            if len(fine) > 1 or (fine and self.keeper.seconds_up(fine[0]) >= SETTLED_SECONDS):
                return self._find(self._rng.choice(fine))
            self._over.wait(0.2)
        raise NotNow

    def executors_at_work(self) -> list[str]:
        """Names of executors that are up, not frozen, and have their wires."""
        now = time.time()
        silent = {
            fault.detail.split()[0]
            for fault in self.faults
            if fault.kind.startswith("silent") and fault.until > now
        }
        return [
            name
            for name in self.keeper.executors
            if name not in silent
            and (service := self.keeper.running(name)) is not None
            and not is_frozen(service)
        ]

    def _find(self, *names: str) -> Service:
        """The first of these that is up, when one is."""
        until = time.monotonic() + FIND_SECONDS
        while time.monotonic() < until:
            for name in names:
                service = self.keeper.running(name)
                if service is not None and not is_frozen(service):
                    return service
            time.sleep(0.05)
        raise NotNow

    def worker_id(self, name: str) -> int:
        for id, known in self.database.worker_names().items():
            if known == name:
                return id
        raise NotNow

    def _submit(self, number: int, action: str, seconds: float, **more: Any) -> list[str]:
        """Ask for executions, in one request; their ids. Raises NotNow."""
        parameters = {"trace": self.trace, "seconds": seconds}
        asked = {"action_ref": action, "parameters": parameters, **more}
        ids = []
        with self.api() as http:
            for _ in range(number):
                answer = http.post("/executions", json=asked)
                if answer.status_code != 201:
                    raise NotNow
                ids.append(str(UUID(answer.json()["id"])))
        return ids

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        with channel_of(self.muster) as channel:
            yield channel


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


def is_frozen(service: Service) -> bool:
    try:
        return psutil.Process(service.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return True
