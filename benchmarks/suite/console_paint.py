"""The console in a browser: how soon there is something to see, and how smoothly it scrolls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Browser, BrowserContext, Page

from benchmarks.console_names import LARGE
from benchmarks.door import Door
from benchmarks.remote import BenchmarkError
from benchmarks.samples import Benchmark, Goal, Plan, Sample, percentile
from benchmarks.stage import Stage
from benchmarks.suite.console import NOW, SMALL, fill
from tests.browser import chromium

OPENED = 10
"""Times a round, for each way to open a page."""
SCROLLED_MS = 2_000
MANY = 1_000
"""Workers on the map that is scrolled."""
LEAST_ROOM = 1_000
"""Pixels: what is shorter shows nothing of scrolling."""
COLD, WARM, SLOWEST = "first paint, cold", "first paint, warm", "slowest to scroll"

PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
SCROLL = """milliseconds => new Promise(done => {
  const room = each => Math.max(
    each.scrollHeight - each.clientHeight, each.scrollWidth - each.clientWidth);
  const boxes = [...document.querySelectorAll('main *'), document.scrollingElement].filter(each =>
    each === document.scrollingElement || /auto|scroll/.test(getComputedStyle(each).overflow));
  const box = boxes.reduce((a, b) => room(b) > room(a) ? b : a);
  const began = performance.now();
  let frames = 0, step = 60;
  const scroll = () => {
    const before = box.scrollTop + box.scrollLeft;
    box.scrollBy({ top: step, left: step, behavior: 'instant' });
    if (box.scrollTop + box.scrollLeft === before) step = -step;
    frames += 1;
    const passed = performance.now() - began;
    if (passed < milliseconds) requestAnimationFrame(scroll);
    else done({ room: room(box), perSecond: 1000 * frames / passed });
  };
  requestAnimationFrame(scroll);
})"""
"""Scrolls what has most to scroll, to its end and back, a step a frame."""


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    with chromium.started() as browser:
        with _console(stage, workers=SMALL.workers) as (_, visitor):
            for number in range(1, plan.rounds + 1):
                for way, times_ms in _paints(browser, visitor).items():
                    yield Sample(way, number, percentile(times_ms, 50), "ms")
        with _console(stage, workers=MANY) as (paths, visitor):
            for number in range(1, plan.rounds + 1):
                rates = {name: _frames(browser, visitor, paths[name]) for name in LARGE}
                for name, rate in rates.items():
                    yield Sample(f"{name}, scrolled", number, rate, "frames/s")
                yield Sample(SLOWEST, number, min(rates.values()), "frames/s")


@dataclass(frozen=True)
class Visitor:
    """The session of somebody who is logged in, and its address."""

    url: str
    cookie: str
    session: str

    @contextmanager
    def context(self, browser: Browser) -> Iterator[BrowserContext]:
        """A browser's window of its own, with nothing in its cache."""
        context = browser.new_context(base_url=self.url, viewport=chromium.WIDE)
        context.add_cookies([{"name": self.cookie, "value": self.session, "url": self.url}])
        yield context
        context.close()


@contextmanager
def _console(stage: Stage, *, workers: int) -> Iterator[tuple[dict[str, str], Visitor]]:
    """An installation with something on each page: the paths of these, and who may see them."""
    with stage.muster(slots=1) as party:
        fill(party, SMALL, workers=workers)
        name, _, value = party.remote.call("log_in").partition("=")
        door = Door(party, "manage.py", "api", "--port")
        yield party.remote.call("console_paths"), Visitor(door.url, name, value)


def _paints(browser: Browser, visitor: Visitor) -> dict[str, list[float]]:
    """Milliseconds, by a browser that has nothing of the console and by the same one again."""
    times: dict[str, list[float]] = {COLD: [], WARM: []}
    for _ in range(OPENED):
        with visitor.context(browser) as context:
            for way in (COLD, WARM):
                page = context.new_page()
                page.goto(NOW)
                times[way].append(_painted(page))
                page.close()
    return times


def _frames(browser: Browser, visitor: Visitor, path: str) -> float:
    with visitor.context(browser) as context:
        page = context.new_page()
        page.goto(path)
        _painted(page)
        found = page.evaluate(SCROLL, SCROLLED_MS)
    if found["room"] < LEAST_ROOM:
        raise BenchmarkError(f"{path}: only {found['room']} pixels to scroll")
    return float(found["perSecond"])


def _painted(page: Page) -> float:
    """Milliseconds from the request to the first text or picture."""
    while (found := page.evaluate(PAINTED)) is None:  # the page lets nobody wait inside it: no eval
        page.wait_for_timeout(20)
    return float(found)


BENCHMARK = Benchmark(
    name="console-paint",
    title="The console in a browser",
    measure=measure,
    notes=(
        "Debian's Chromium without a screen, so drawn by the processor, on the same machine. Now, "
        f"of an installation with {SMALL.workers} workers, is opened {OPENED} times a round by a "
        "browser that has nothing of it, and again. The pictures of a thousand are scrolled for "
        f"{SCROLLED_MS / 1000:.0f} s, a step a frame."
    ),
    goals=[
        Goal(what="first paint of Now, cold", subject=COLD, unit="ms", at_most=800),
        Goal(what="first paint of Now, warm", subject=WARM, unit="ms", at_most=300),
        Goal(
            what="graph, gantt, heat map of 1,000, scrolled",
            subject=SLOWEST,
            unit="frames/s",
            at_least=30,
        ),
    ],
)
