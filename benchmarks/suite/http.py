"""The door that most people use: HTTP, over an endpoint that calls Celery's `delay`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from benchmarks import rivals
from benchmarks.door import EXECUTIONS, Door
from benchmarks.remote import Remote
from benchmarks.samples import Benchmark, Goal, Plan, Sample, parts, percentile
from benchmarks.stage import Party, Stage

CLIENTS = (1, 4, 32)
NOBODY = "mst_nobody"
MUSTER, RIVAL, BY_HAND = "Muster", "FastAPI", "By hand"
IN_PROCESS, REFUSED = "in process", "Muster, refused"


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with (
        stage.muster(slots=2) as muster,
        stage.rival(rivals.FASTAPI_CELERY) as rival,
        stage.rival(rivals.BY_HAND_API) as by_hand,
    ):
        # more would be answered 429, without a look at the token
        muster.environment["MUSTER_REFUSED_TOKENS_PER_MINUTE"] = "1000000000"
        doors = {
            MUSTER: Door(muster, "manage.py", "api", "--port"),
            RIVAL: _uvicorn(rival, rivals.FASTAPI_APP),
            BY_HAND: _uvicorn(by_hand, rivals.BY_HAND_APP),
        }
        tokens = {MUSTER: muster.remote.call("make_token"), BY_HAND: rivals.BY_HAND_TOKEN}
        for subject, token in tokens.items():
            doors[subject].headers["Authorization"] = f"Bearer {token}"
        with closing(Remote("benchmarks.http_load", muster.environment, muster.directory)) as load:
            for door in doors.values():
                list(_posts(door, load, "warm up", 0, 200))
            for number in range(1, plan.rounds + 1):
                size = parts(plan.size, one_of=5, at_least=200)
                for subject, door in doors.items():
                    yield from _posts(door, load, subject, number, size)
                for subject in (MUSTER, BY_HAND):
                    value = doors[subject].party.per_second(size, bulk=False)
                    yield Sample(f"{subject}, {IN_PROCESS}", number, value, "/s")
                    yield from _gets(doors[subject], load, subject, number, size)
                yield from _others(doors[MUSTER], load, number, size)


def _uvicorn(party: Party, app: str) -> Door:
    party.resume()
    door = Door(party, "-m", "uvicorn", "--no-access-log", app, "--port")
    party.pause()
    return door


def _posts(door: Door, load: Remote, subject: str, number: int, count: int) -> Iterator[Sample]:
    for clients in CLIENTS:
        with door.party.turn():
            door.party.begin()
            seconds, times_ms = door.ask(load, "POST", 201, clients=clients, count=count)
            door.party.remote.call("wait", count=count, within_seconds=60)
            door.party.check(count)
        yield Sample(f"{subject}, POST, {clients}", number, count / seconds, "/s")
        yield Sample(f"{subject}, POST, {clients}, p99", number, percentile(times_ms, 99), "ms")


def _gets(door: Door, load: Remote, subject: str, number: int, count: int) -> Iterator[Sample]:
    with door.party.turn():
        path = f"{EXECUTIONS}/{door.party.remote.call('some_execution')}"
        for clients in (1, 4):
            seconds, _ = door.ask(load, "GET", 200, path=path, clients=clients, count=count)
            yield Sample(f"{subject}, GET one, {clients}", number, count / seconds, "/s")


def _others(door: Door, load: Remote, number: int, count: int) -> Iterator[Sample]:
    for clients in (1, 4):
        seconds, _ = door.ask(load, "GET", 200, clients=clients, count=count)
        yield Sample(f"{MUSTER}, GET 50, {clients}", number, count / seconds, "/s")
    seconds, _ = door.ask(load, "POST", 401, token=NOBODY, clients=4, count=count)
    yield Sample(REFUSED, number, count / seconds, "/s")


BENCHMARK = Benchmark(
    name="http",
    title="Requests over HTTP, over FastAPI with Celery's delay",
    measure=measure,
    notes=(
        "One API process of each; 1, 4 and 32 connections, each of which asks again at once. "
        "FastAPI: raw Celery behind it, nobody asked for a token, nothing kept. By hand: the same, "
        "with a token looked up, and rows and transitions of it committed as in `bulk-celery`. In "
        "process: one client of the same code without HTTP, until all have ended."
    ),
    goals=[
        *(
            Goal(
                what=f"POST, {clients} clients, over FastAPI and delay",
                subject=f"{MUSTER}, POST, {clients}",
                over=f"{RIVAL}, POST, {clients}",
                at_least=1.0,
            )
            for clients in (4, 32)
        ),
        Goal(
            what="POST, 4 clients, over the same in process",
            subject=f"{MUSTER}, POST, 4",
            over=f"{MUSTER}, {IN_PROCESS}",
            at_least=0.8,
        ),
        Goal(
            what="POST, 32 clients, p99",
            subject=f"{MUSTER}, POST, 32, p99",
            unit="ms",
            at_most=100.0,
        ),
        Goal(
            what="refused over accepted, 4 clients",
            subject=REFUSED,
            over=f"{MUSTER}, POST, 4",
            at_least=1.0,
        ),
    ],
)
