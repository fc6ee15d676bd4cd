"""Queues and Catalogue in a real browser; tabs, zoom, and time zones of all pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import chromium
from tests.browser.conftest import LOOK_MS
from tests.scenarios.installation import Installation

TTL_MS = 12_000
EXPIRED_MS = TTL_MS + 2 * LOOK_MS
TABS = 12
PAGES = ("queues", "queues/bills", "catalogue", "catalogue/actions/core.echo",
         "catalogue/packs/core")  # fmt: skip

HIDDEN = (
    "window.isHidden = true;"
    "Object.defineProperty(document, 'hidden', {get: () => window.isHidden});"
    "window.hide = hidden => { window.isHidden = hidden;"
    " document.dispatchEvent(new Event('visibilitychange')); };"
)
"""A page in the background; a browser without a window has none."""


@pytest.fixture(scope="module")
def work(muster: Installation) -> SimpleNamespace:
    muster.command("queue", "create", "bills", "--max-running", "5")
    done = muster.submit_many([{"parameters": {"message": "hello"}}] * 3, "core.echo")
    muster.wait_for_ends(done)
    waiting = {"parameters": {"message": "hello"}, "queue": "bills"}
    muster.submit_many([waiting] * 2, "core.echo")
    return SimpleNamespace(done=done)


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.slow)])
def themed(request: Any, browser: Browser, address: str, session: Any) -> Iterator[Any]:
    """Makes a page in one theme, of this size."""
    made = []

    def make(viewport: Any) -> Page:
        options: Any = {"viewport": viewport, "color_scheme": request.param}
        made.append(browser.new_context(base_url=address, storage_state=session, **options))
        made[-1].set_default_timeout(LOOK_MS)
        return made[-1].new_page()

    yield make
    for context in made:
        context.close()


def is_live(page: Page) -> None:
    expect(page.locator("#pulse")).to_have_text("live")


def cell(row: Locator, number: int) -> Locator:
    return row.locator("td").nth(number)


@pytest.mark.slow
def test_a_dead_workers_queue_shows_depth_and_time_left_and_then_its_letter(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    w2 = muster.start_worker("w2")
    muster.ready()
    w2.kill_tree()  # its heartbeat stays fresh for a while
    worker_id = muster.worker("w2").id
    muster.submit("core.noop", {}, worker_id=worker_id, queue_ttl_ms=TTL_MS)
    page.goto("/console/queues")
    is_live(page)
    row = page.get_by_role("row", name=re.compile(r"worker\.\d+\.executions")).filter(has_text="w2")
    expect(cell(row, 1)).to_have_text("1")
    expect(cell(row, 2)).to_have_text("1")
    left = row.locator("[data-left]")
    expect(left).to_have_text(re.compile(r"^\d+ s$"))
    first = int(left.inner_text().split()[0])
    assert 0 < first <= TTL_MS / 1000
    page.wait_for_function("([e, first]) => parseInt(e.textContent) < first",
                           arg=[left.element_handle(), first])  # fmt: skip
    expect(row.get_by_role("link", name="1 dead letter")).to_be_visible(timeout=EXPIRED_MS)
    expect(cell(row, 1)).to_have_text("0")
    row.get_by_role("link", name="1 dead letter").click()
    expect(page.get_by_text("queue_ttl_expired").first).to_be_visible()


@pytest.mark.slow
def test_twelve_tabs_of_one_browser_load_and_act(
    browser: Browser, address: str, session: Any, work: SimpleNamespace
) -> None:
    context = browser.new_context(base_url=address, storage_state=session)
    context.set_default_timeout(LOOK_MS)
    context.add_init_script(HIDDEN)
    tabs = [context.new_page() for _ in range(TABS)]
    for tab in tabs:
        tab.goto("/console/queues/bills")
        expect(tab.get_by_role("heading", level=1)).to_contain_text("bills")
    for number, tab in enumerate(tabs):
        tab.evaluate("hide(false)")
        is_live(tab)
        if number % 4 != 3:
            tab.evaluate("hide(true)")  # a browser shows one of them
            continue
        act = "Resume" if number == 7 else "Pause"
        tab.get_by_role("button", name=f"{act} …").click()
        tab.get_by_role("dialog").get_by_label("Reason").fill(f"tab {number}")
        tab.keyboard.press("Enter")
        expect(tab.get_by_role("row", name=re.compile(f"user:ada tab {number}$"))).to_be_visible()
    context.close()


def test_times_are_in_the_zone_that_was_chosen_and_ages_by_the_databases_clock(
    browser: Browser, address: str, session: Any, work: SimpleNamespace
) -> None:
    context = browser.new_context(
        base_url=address, storage_state=session, timezone_id="Asia/Kolkata"
    )
    context.set_default_timeout(LOOK_MS)
    # this browser's clock is off by an hour
    context.add_init_script("const now = Date.now; Date.now = () => now() + 3_600_000;")
    page = context.new_page()
    page.goto(f"/console/executions/{work.done[0]}")
    assert _agrees(page, "UTC", "UTC")
    page.get_by_role("button", name="Time zone and density: UTC").click()
    page.get_by_label("Times are in").select_option(label="this browser's zone")
    page.keyboard.press("Escape")
    expect(page.locator("time", has_text="IST").first).to_be_visible()
    assert _agrees(page, "Asia/Kolkata", "IST")
    page.goto("/console/fleet")
    # Chromium knows the zone by its former name, too
    chosen = re.compile("Time zone and density: Asia.(Kolkata|Calcutta)")
    expect(page.get_by_role("button", name=chosen)).to_be_visible()
    heartbeat = page.get_by_role("row", name=re.compile("^w1 ")).locator("td").nth(3)
    expect(heartbeat).to_have_text(re.compile(r"^\d+(\.\d)? (ms|s) ago$"))
    context.close()


def _agrees(page: Page, zone: str, name: str) -> bool:
    """Whether each time of the page says the moment that it has."""
    times = page.locator("time").evaluate_all("all => all.map(e => [e.dateTime, e.textContent])")
    locals_of = [(datetime.fromisoformat(at).astimezone(ZoneInfo(zone)), t) for at, t in times]
    return bool(times) and all(t == f"{at:%Y-%m-%d %H:%M:%S} {name}" for at, t in locals_of)


def test_a_page_at_twice_the_size_fits_its_window_and_nothing_moves_if_that_is_wished(
    browser: Browser, address: str, session: Any, work: SimpleNamespace
) -> None:
    half: Any = {"width": chromium.WIDE["width"] // 2, "height": chromium.WIDE["height"] // 2}
    context = browser.new_context(
        base_url=address, storage_state=session, viewport=half, device_scale_factor=2,
        reduced_motion="reduce",
    )  # fmt: skip
    context.set_default_timeout(LOOK_MS)
    page = context.new_page()
    for path in ("", "executions", "fleet", *PAGES):
        page.goto(f"/console/{path}")
        assert chromium.overhang(page) == 0, path
        moving = page.evaluate(
            "[...document.querySelectorAll('*')].filter(e => {"
            " const style = getComputedStyle(e);"
            " return style.transitionDuration !== '0s' || style.animationName !== 'none'; }).length"
        )
        assert moving == 0, path
        without_words = page.locator(".badge").evaluate_all(
            "all => all.filter(e => !e.textContent.trim()).length"
        )
        assert without_words == 0, path  # no state is told by its colour alone
    context.close()


@pytest.mark.slow
def test_every_page_is_without_fault_and_as_wide_as_its_window(
    themed: Any, work: SimpleNamespace
) -> None:
    for viewport in (chromium.WIDE, chromium.PHONE):
        page = themed(viewport)
        for path in PAGES:
            page.goto(f"/console/{path}")
            assert chromium.overhang(page) == 0, path
            # what a page is made of is the same on a phone
            if viewport is chromium.WIDE or path == PAGES[0]:
                assert chromium.faults(page) == [], path


def test_the_dialogs_of_these_pages_are_without_fault(themed: Any, work: SimpleNamespace) -> None:
    page = themed(chromium.PHONE)
    page.goto("/console/queues/bills#retire")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert chromium.faults(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Time zone and density").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert chromium.faults(page) == []
