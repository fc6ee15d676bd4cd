"""The operators' console in a real browser, on a real installation."""

from __future__ import annotations

import re
from signal import SIGCONT, SIGSTOP
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect

from tests.browser import chromium
from tests.browser.conftest import LOOK_MS
from tests.scenarios.installation import Installation

MESSAGE = "no route to printer 7"
SILENT_MS, BACK_MS = 25_000, 15_000
"""Limits for a machine that does much else; on an idle one it takes 14 s, and 2 s."""


@pytest.fixture(scope="module")
def work(muster: Installation) -> SimpleNamespace:
    """What the pages show: executions that completed, failed and still run, and an entry."""
    done = muster.submit_many([{"parameters": {"message": "hello"}}] * 3, "core.echo")
    failed = muster.submit_many([{"parameters": {"message": MESSAGE}}] * 4, "core.fail")
    muster.wait_for_ends([*done, *failed])
    muster.command("dlq", "open", "--execution", str(failed[0]), "--detail", "look")
    held = muster.submit_note("held", is_gated=True)
    muster.wait_for_start("held")
    return SimpleNamespace(done=done, failed=failed, held=held)


@pytest.fixture
def requests(page: Page) -> list[str]:
    """The addresses that the page asks for."""
    urls: list[str] = []

    def note(request: Request) -> None:
        urls.append(request.url)

    page.on("request", note)
    return urls


def pages(work: SimpleNamespace) -> list[str]:
    one = f"/console/executions/{work.failed[0]}"
    return ["/console/", "/console/fleet", "/console/workers/w1", "/console/executions", one]


def count(page: Page, name: str, *, of: str = "Open") -> Any:
    """The number of this name on Now."""
    section = page.locator("section", has=page.get_by_role("heading", name=of))
    return section.locator("li", has_text=re.compile(f"^{name}")).locator(".count")


def is_live(page: Page) -> None:
    expect(page.locator("#pulse")).to_have_text("live")


# --- it keeps up ----------------------------------------------------------------------------------


def test_each_number_of_now_is_a_link_to_as_many_rows(page: Page, work: SimpleNamespace) -> None:
    page.goto("/console/")
    links = page.locator(".number a").evaluate_all(
        "all => all.map(a => [a.href, Number(a.querySelector('.count').textContent)])"
    )
    assert len(links) >= 7
    for url, number in links:
        page.goto(url)
        expect(page.locator("tbody tr")).to_have_count(number)


def test_what_happens_appears_without_a_reload(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto("/console/")
    is_live(page)
    page.evaluate("window.isSame = true")
    accepted = count(page, "accepted", of="Accepted")
    before = int(accepted.inner_text())
    muster.wait_for_end(muster.submit("core.echo", {"message": "live"}))
    expect(accepted).to_have_text(str(before + 1))
    assert page.evaluate("window.isSame")


def test_an_execution_that_is_watched_changes_its_status_on_its_page(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    watched = muster.submit("core.sleep", {"seconds": 4})
    page.goto(f"/console/executions/{watched}?tab=history")
    expect(page.locator("h1 .badge")).to_have_text("completed", timeout=2 * LOOK_MS)
    expect(page.get_by_role("row", name=re.compile("finish|complete")).first).to_be_visible()


def test_a_list_that_is_read_does_not_move_and_says_how_many_are_newer(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto("/console/executions")
    is_live(page)
    first = page.locator("tbody tr").first.get_attribute("id")
    muster.wait_for_ends(muster.submit_many([{"parameters": {"message": "x"}}] * 3, "core.echo"))
    newer = page.get_by_role("link", name="3 newer")
    expect(newer).to_be_visible()
    assert page.locator("tbody tr").first.get_attribute("id") == first
    newer.click()
    expect(page.locator("tbody tr").first).not_to_have_id(first or "")


def test_what_is_typed_and_a_dialog_survive_live_changes(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto("/console/executions")
    is_live(page)
    page.get_by_role("combobox", name="Search", exact=True).fill("core.ec")
    muster.wait_for_end(muster.submit("core.echo", {"message": "x"}))
    expect(page.get_by_role("link", name="1 newer")).to_be_visible()
    expect(page.get_by_role("combobox", name="Search", exact=True)).to_have_value("core.ec")
    expect(page.get_by_role("combobox", name="Search", exact=True)).to_be_focused()


@pytest.mark.slow
def test_a_pause_ends_all_requests_and_afterwards_the_page_is_current(
    page: Page, muster: Installation, work: SimpleNamespace, requests: list[str]
) -> None:
    page.goto("/console/")
    is_live(page)
    page.keyboard.press("p")
    expect(page.locator("#pulse")).to_have_text("paused")
    accepted = count(page, "accepted", of="Accepted")
    before = int(accepted.inner_text())
    requests.clear()
    muster.wait_for_end(muster.submit("core.echo", {"message": "x"}))
    page.wait_for_timeout(6_000)
    assert requests == []
    assert accepted.inner_text() == str(before)
    page.keyboard.press("p")
    expect(accepted).to_have_text(str(before + 1))


@pytest.mark.slow
def test_without_a_stream_the_page_says_so_and_still_moves(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.route("**/console/live?*", lambda route: route.abort())
    page.goto("/console/")
    expect(page.locator("#pulse")).to_have_text("every 10 s")
    accepted = count(page, "accepted", of="Accepted")
    before = int(accepted.inner_text())
    muster.wait_for_end(muster.submit("core.echo", {"message": "x"}))
    expect(accepted).to_have_text(str(before + 1), timeout=2 * LOOK_MS)


@pytest.mark.slow
def test_a_hidden_tab_holds_no_connection(
    page: Page, muster: Installation, work: SimpleNamespace, requests: list[str]
) -> None:
    page.add_init_script(
        "window.isHidden = false;"
        "Object.defineProperty(document, 'hidden', {get: () => window.isHidden});"
        "window.hide = hidden => { window.isHidden = hidden;"
        " document.dispatchEvent(new Event('visibilitychange')); };"
        "window.streams = [];"
        "window.EventSource = class extends EventSource {"
        " constructor(...given) { super(...given); window.streams.push(this); } };"
    )
    held = "window.streams.filter(each => each.readyState !== EventSource.CLOSED).length"
    page.goto("/console/")
    is_live(page)
    assert page.evaluate(held) == 1
    page.evaluate("hide(true)")
    requests.clear()  # only now: until it is hidden the page may ask, as something has moved
    page.wait_for_timeout(6_000)
    assert requests == []
    assert page.evaluate(held) == 0
    with page.expect_request("**/console/live?*"):
        page.evaluate("hide(false)")
    is_live(page)


@pytest.mark.slow
def test_a_frozen_executor_is_said_on_every_page_and_no_longer_when_it_goes_on(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    executor = next(each for each in muster.services if each.name == "executor")
    page.goto("/console/fleet")
    is_live(page)
    said = page.get_by_text("No executor is alive")
    executor.signal_tree(SIGSTOP)
    try:
        expect(said).to_be_visible(timeout=SILENT_MS)
    finally:
        executor.signal_tree(SIGCONT)
    expect(said).not_to_be_visible(timeout=BACK_MS)


# --- acts -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_is_cordoned_from_the_palette_with_a_reason_and_not_without(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto("/console/executions")
    page.keyboard.press("Control+k")
    page.keyboard.type("cordon w1")
    expect(page.locator("#found [role=option]").first).to_contain_text("Cordon w1")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Give w1 no more work?")
    expect(dialog).to_be_visible()
    order = dialog.get_by_role("button", name="Cordon w1")
    order.click()
    expect(dialog).to_be_visible()  # it asks for the reason
    dialog.get_by_label("Reason").fill("new disk")
    order.click()
    expect(page.get_by_text("Cordoned: w1.")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("cordoned.*user:ada.*new disk"))).to_be_visible()
    page.get_by_role("button", name="Uncordon").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("done")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Uncordoned: w1.")).to_be_visible()


def test_a_dialog_that_is_left_changes_nothing_and_gives_the_focus_back(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto("/console/workers/w1")
    drain = page.get_by_role("button", name="Drain …")
    for leave in (lambda: page.keyboard.press("Escape"),
                  lambda: page.get_by_role("button", name="Go back").click()):  # fmt: skip
        drain.click()
        expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
        leave()
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(drain).to_be_focused()


# --- without a mouse, on a phone, with a screen reader --------------------------------------------


def test_keys_lead_to_pages_and_rows_and_none_acts_while_one_types(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto("/console/")
    page.keyboard.press("Tab")
    assert chromium.focused(page) == "Skip to the content"
    page.keyboard.type("ge")
    page.wait_for_url("**/console/executions")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tbody tr a").first).to_be_focused()
    page.get_by_role("combobox", name="Search", exact=True).focus()
    page.keyboard.type("gfp?")
    expect(page.get_by_role("combobox", name="Search", exact=True)).to_have_value("gfp?")
    page.locator("h1").click()
    page.keyboard.type("gf")
    page.wait_for_url("**/console/fleet")
    page.keyboard.type("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_the_theme_that_is_chosen_stays(page: Page, work: SimpleNamespace) -> None:
    page.goto("/console/")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.slow
def test_every_page_is_without_fault_and_as_wide_as_its_window(
    themed: tuple[Page, Page], work: SimpleNamespace
) -> None:
    faults = {}
    for page in themed:
        for path in pages(work):
            page.goto(path)
            is_live(page)
            assert chromium.overhang(page) == 0, path
            faults[path] = chromium.faults(page)
    assert not any(faults.values()), faults


def test_dialogs_are_without_fault(themed: tuple[Page, Page], work: SimpleNamespace) -> None:
    for page in themed:
        page.goto("/console/workers/w1#cordon")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert chromium.faults(page) == []
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        expect(page.locator("#found [role=option]").first).to_be_visible()
        assert chromium.faults(page) == []


CLOSED_AND_PRESSED = """() => {
    const field = document.activeElement;
    field.closest("dialog").close();
    field.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true}));
}"""
"""All before the page is drawn again, until when the field may keep the focus."""


def test_key_that_is_pressed_as_soon_as_a_dialog_is_closed_is_heard(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto("/console/workers/w1#cordon")
    expect(page.locator("#cordon input:not([type=hidden]), #cordon textarea").first).to_be_focused()
    page.evaluate(CLOSED_AND_PRESSED)
    expect(page.locator("#found [role=option]").first).to_be_visible()


def test_nothing_is_asked_of_another_host_and_the_policy_refuses_nothing(
    page: Page, address: str, work: SimpleNamespace, requests: list[str]
) -> None:
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    for path in pages(work):
        page.goto(path)
        is_live(page)
    assert refused == []
    assert all(url.startswith(address) for url in requests)
