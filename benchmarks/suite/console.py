"""The console: its pages over a million executions, and what tabs that keep up cost everybody."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.console_names import LARGE, TABLES
from benchmarks.door import Door
from benchmarks.remote import BenchmarkError, Remote
from benchmarks.samples import Benchmark, Goal, Plan, Sample, percentile
from benchmarks.stage import Muster, Stage
from benchmarks.statements import Log


@dataclass(frozen=True)
class Sizes:
    """The amount of what there is, and the time for which it is looked at."""

    executions: int
    others: int
    """Tasks, and entries of the DLQ."""
    workers: int
    asked: int
    """Times a round, for each page."""
    tabs: int
    seconds: float
    """With tabs open; without any it is looked for `QUIET_SECONDS`."""


FULL = Sizes(1_000_000, 20_000, 1_000, asked=20, tabs=300, seconds=60)
SMALL = Sizes(2_000, 200, 50, asked=3, tabs=20, seconds=8)
"""For a run that only shows that it works."""

QUIET_SECONDS = 10.0
LINGER_SECONDS = 13.0
"""A stream's reader goes on for ten seconds after the last tab has left."""
SETTLE_SECONDS = 2.0
NOW, LISTED, LIVE = "/console/", "/console/executions", "/console/live"
OFTEN = (0.2, 1.2)
"""Seconds between two executions whose way to the screen is timed: in step with no reader."""
KB = 1_000

SLOWEST, LARGEST, LARGEST_SENT = "slowest page, p95", "largest list", "largest list, gzip"
MOST, MOST_AFTER = "most statements, looking alone", "most statements, a moment later"
PICTURE, PICTURE_SIZE = "slowest picture, p95", "largest picture"
ASSETS, ASSETS_SENT, REQUESTS = "first visit", "first visit, gzip", "first visit, requests"
SCREEN, SCREEN_P99 = "commit to screen, p50", "commit to screen, p99"
CPU, CPU_ONE = "processor, many tabs", "processor, one tab"
READ, READ_ONE = "queries, many tabs", "queries, one tab"
READERS = "connections that read, many tabs"
NOBODY, LEFT, HELD = "queries, nobody looks", "queries, all have left", "connections kept"


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    sizes = FULL if plan.size >= Plan().size else SMALL
    with stage.muster(slots=1) as party:
        fill(party, sizes, workers=sizes.workers)
        party.remote.call("load_pages")
        for number in range(1, plan.rounds + 1):
            yield from _pages(party, sizes, number)
        yield from _first_visit(party)
        log = _log(stage, party)
        log.begin()
        with opened(party) as load:
            for number in range(1, plan.rounds + 1):
                yield from _quiet(log, number)
                yield from _listening(party, load, log, sizes, number)
                yield from _on_screen(party, load, sizes, number)


def fill(party: Muster, sizes: Sizes, *, workers: int) -> None:
    """Write what is looked at. The services end: none works beside it."""
    party.per_second(1)  # the copies' model
    for name in ("worker", "executor"):
        # what is written from here on is not theirs, and pages wait for nobody
        service = party.services.pop(name)
        service.terminate()
        service.wait(30)
    party.remote.call("fill", count=sizes.executions)
    party.remote.call("vary")
    party.remote.call("install_templates", sizes=[2])
    party.remote.call("fill_others", count=sizes.others)
    party.remote.call("fill_console", workers=workers)


def _log(stage: Stage, party: Muster) -> Log:
    path = stage.postgres.directory / "server.log"
    return Log(stage.postgres.url, party.environment["DATABASE_URL"], path)


@contextmanager
def opened(party: Muster) -> Iterator[Remote]:
    """An API process, and the process that opens tabs of its console."""
    door = Door(party, "manage.py", "api", "--port")
    cookie = party.remote.call("log_in")
    with closing(Remote("benchmarks.console_load", party.environment, party.directory)) as load:
        load.call("begin", url=door.url, cookie=cookie, live=LIVE)
        yield load


# --- pages ---------------------------------------------------------------------------------------


def _pages(party: Muster, sizes: Sizes, number: int) -> Iterator[Sample]:
    looked = {}
    for name, path in party.remote.call("console_paths").items():
        looked[name] = page = party.remote.call("look_at_console", path=path, count=sizes.asked)
        yield Sample(f"{name}, p95", number, percentile(page["times_ms"], 95), "ms")
        yield Sample(f"{name}, size", number, page["size"] / KB, "KB")
    yield from _extremes(looked, number)


def _extremes(looked: Mapping[str, Mapping[str, Any]], number: int) -> Iterator[Sample]:
    """Of all pages, the figures that come nearest to their goals."""
    p95 = {name: percentile(page["times_ms"], 95) for name, page in looked.items()}
    rest = looked.keys() - set(LARGE)
    yield Sample(SLOWEST, number, max(p95[name] for name in rest), "ms")
    yield Sample(MOST, number, max(page["statements"] for page in looked.values()), "")
    yield Sample(MOST_AFTER, number, max(page["statements_after"] for page in looked.values()), "")
    yield Sample(LARGEST, number, max(looked[name]["size"] for name in TABLES) / KB, "KB")
    yield Sample(LARGEST_SENT, number, max(looked[name]["gzipped"] for name in TABLES) / KB, "KB")
    yield Sample(PICTURE, number, max(p95[name] for name in LARGE), "ms")
    yield Sample(PICTURE_SIZE, number, max(looked[name]["size"] for name in LARGE) / KB, "KB")


def _first_visit(party: Muster) -> Iterator[Sample]:
    requests, size, sent = party.remote.call("first_visit")
    yield Sample(REQUESTS, 1, requests, "")
    yield Sample(ASSETS, 1, size / KB, "KB")
    yield Sample(ASSETS_SENT, 1, sent / KB, "KB")


# --- tabs ----------------------------------------------------------------------------------------


def _quiet(log: Log, number: int) -> Iterator[Sample]:
    yield Sample(NOBODY, number, log.within(QUIET_SECONDS).total(), "")


def _listening(
    party: Muster, load: Remote, log: Log, sizes: Sizes, number: int
) -> Iterator[Sample]:
    """The cost of one tab, and of many, while an execution is accepted each second; and what stays
    when they have left."""
    ours = {party.remote.call("backend")}
    one = _with_tabs(party, load, log, tabs=1, seconds=sizes.seconds)
    many = _with_tabs(party, load, log, tabs=sizes.tabs, seconds=sizes.seconds)
    for cpu, read, cost in ((CPU_ONE, READ_ONE, one), (CPU, READ, many)):
        yield Sample(cpu, number, cost.processor, "% of a core")
        yield Sample(read, number, cost.statements.total() / cost.seconds, "/s")
    yield Sample(READERS, number, len(many.statements), "")
    time.sleep(LINGER_SECONDS)
    yield Sample(LEFT, number, log.within(QUIET_SECONDS, but=ours).total(), "")
    yield Sample(HELD, number, len(log.connections() & many.statements.keys()), "")


@dataclass(frozen=True)
class Cost:
    """The resources that were used while some tabs were open."""

    seconds: float
    processor: float
    statements: Counter[int]
    """By the process of their connection."""


def _with_tabs(party: Muster, load: Remote, log: Log, *, tabs: int, seconds: float) -> Cost:
    topics, ours = party.remote.call("topics_of", path=NOW), party.remote.call("backend")
    load.call("open_tabs", number=tabs, topics=topics)
    time.sleep(SETTLE_SECONDS)
    before = load.call("counted")
    used, began = _processor(party), time.monotonic()
    log.mark()
    party.remote.call("live_steadily", seconds=seconds)
    statements, elapsed = log.counts(but={ours}), time.monotonic() - began
    processor = 100 * (_processor(party) - used) / elapsed
    _check_heard(load, before, tabs, seconds)
    load.call("close_tabs")
    return Cost(elapsed, processor, statements)


def _processor(party: Muster) -> float:
    """The seconds that the API process has worked so far."""
    return float(sum(sum(process.cpu_times()[:2]) for process in party.tree("api")))


def _check_heard(load: Remote, before: Mapping[str, int], tabs: int, seconds: float) -> None:
    """Each tab heard something every few seconds, and none was closed."""
    after = load.call("counted")
    heard, ended = (after[name] - before[name] for name in ("moved", "ended"))
    if ended or heard < tabs * seconds / 2:
        raise BenchmarkError(f"{tabs} tabs heard {heard} times, {ended} were closed")


def _on_screen(party: Muster, load: Remote, sizes: Sizes, number: int) -> Iterator[Sample]:
    topics = party.remote.call("topics_of", path=LISTED)
    load.call("open_tabs", number=1, topics=topics, page=LISTED)
    time.sleep(SETTLE_SECONDS)
    committed = party.remote.call("live_steadily", seconds=sizes.seconds, pause=OFTEN)
    time.sleep(2 * SETTLE_SECONDS)
    seen = load.call("seen")
    load.call("close_tabs")
    if missing := committed.keys() - seen.keys():
        raise BenchmarkError(f"{len(missing)} of {len(committed)} executions were not shown")
    times = [seen[id] - at for id, at in committed.items()]
    yield Sample(SCREEN, number, percentile(times, 50), "s")
    yield Sample(SCREEN_P99, number, percentile(times, 99), "s")
    time.sleep(LINGER_SECONDS)


BENCHMARK = Benchmark(
    name="console",
    title="The console over a million executions, and its tabs",
    measure=measure,
    notes=(
        f"{FULL.executions:,} executions that ended ({SMALL.executions:,} where the size is smaller"
        f" than the default) with three history rows each, {FULL.workers:,} workers of eight slots "
        f"that all run something, {FULL.others:,} tasks and entries of the DLQ, a task of 1,000 "
        f"steps, and more than a page of whatever else has a list. Each page is asked for "
        f"{FULL.asked} times a round in the process that measures, compressed, and with nothing "
        "kept of what is the same for everybody. Tabs are plain sockets on the stream of one API "
        f"process: {FULL.tabs} of them for {FULL.seconds:.0f} s, while an execution is accepted "
        "each second. Queries are those in the log of the database, but for the renewal of the "
        "process's own presence. A window is a tab that asks again for its page when something "
        "moved, at most once a second, and less often while answers are slow; from a commit to the "
        "screen it is one on the list of executions."
    ),
    goals=[
        Goal(what="slowest page of the console, p95", subject=SLOWEST, unit="ms", at_most=150),
        Goal(what="statements of a page, a moment later", subject=MOST_AFTER, unit="", at_most=12),
        Goal(what="statements of a page, looking alone", subject=MOST, unit="", at_most=12),
        Goal(what="page of 50 rows", subject=LARGEST, unit="KB", at_most=60),
        Goal(what="page of 50 rows, gzip", subject=LARGEST_SENT, unit="KB", at_most=12),
        Goal(what="scripts and styles of a first visit", subject=ASSETS, unit="KB", at_most=130),
        Goal(what="the same, gzip", subject=ASSETS_SENT, unit="KB", at_most=45),
        Goal(what="graph, gantt, heat map of 1,000, p95", subject=PICTURE, unit="ms", at_most=300),
        Goal(what="graph, gantt, heat map of 1,000", subject=PICTURE_SIZE, unit="KB", at_most=400),
        Goal(what="from commit to screen, p50", subject=SCREEN, unit="s", at_most=1.0),
        Goal(what="from commit to screen, p99", subject=SCREEN_P99, unit="s", at_most=1.5),
        Goal(what="API process with 300 tabs", subject=CPU, unit="% of a core", at_most=15),
        # a beat more or less is in the time that is measured
        Goal(what="queries with 300 tabs over one", subject=READ, over=READ_ONE, at_most=1.05),
        Goal(what="queries in 10 s after all have left", subject=LEFT, unit="", at_most=0),
        Goal(what="connections kept after that", subject=HELD, unit="", at_most=0),
        Goal(what="queries in 10 s while nobody looks", subject=NOBODY, unit="", at_most=0),
    ],
)
