"""Executions in a real browser: searching, watching one, acting on it, running an action."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import chromium
from tests.browser.conftest import LOOK_MS
from tests.scenarios.installation import Installation

LIST = "/console/executions"
MESSAGE = "no route to printer 7"
HOSTILE = "printf '<script>alert(1)</script>\\033[31mred\\342\\200\\256rtl\\n'; exit 3"


@pytest.fixture(scope="module")
def work(muster: Installation) -> SimpleNamespace:
    done = muster.submit_many([{"parameters": {"message": "hello"}}] * 2, "core.echo")
    failed = muster.submit("core.fail", {"message": MESSAGE})
    hostile = muster.submit("core.shell", {"argv": ["sh", "-c", HOSTILE]})
    muster.wait_for_ends([*done, failed, hostile])
    return SimpleNamespace(done=done, failed=failed, hostile=hostile)


def page_of(id: Any, tab: str = "") -> str:
    return f"{LIST}/{id}" + (f"?tab={tab}" if tab else "")


def test_a_search_is_written_with_completion_by_keyboard_alone(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto(LIST)
    field = page.get_by_role("combobox", name="Search", exact=True)
    field.focus()
    field.press_sequentially("sta")
    options = page.locator("#q-list [role=option]")
    expect(options.first).to_contain_text("status:")
    page.keyboard.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") == "q-0"
    page.keyboard.press("Enter")
    expect(field).to_have_value("status:")
    field.press_sequentially("fa")
    expect(options.first).to_have_text(re.compile("^failed"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(field).to_have_value("status:failed ")
    field.press_sequentially('message:"to printer"')
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/executions?q=*")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text(MESSAGE)


def test_a_search_that_cannot_be_read_is_marked_and_shows_no_row(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto(f"{LIST}?q=status:faild")
    expect(page.locator("mark")).to_have_text("faild")
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'failed'?")
    expect(page.locator("tbody tr")).to_have_count(0)


def test_the_address_has_the_search_the_columns_and_the_tab(
    page: Page, browser: Browser, address: str, session: Any, work: SimpleNamespace
) -> None:
    page.goto(LIST)
    page.get_by_role("link", name="failed, last hour").click()
    page.get_by_text("Columns").click()
    for name in ("Worker", "Attempt", "Ran"):
        page.get_by_label(name, exact=True).uncheck()
    page.get_by_role("button", name="Show these").click()
    heads = page.locator("thead th")
    names = ["Ticked", "Status", "Action", "Message", "Accepted", "Id"]
    expect(heads).to_have_text(names)
    rows = page.locator("tbody tr").evaluate_all("all => all.map(row => row.id)")
    assert len(rows) == 2
    context = browser.new_context(base_url=address, storage_state=session)
    other = context.new_page()
    other.goto(page.url)
    assert other.locator("tbody tr").evaluate_all("all => all.map(row => row.id)") == rows
    expect(other.locator("thead th")).to_have_text(names)
    context.close()
    page.locator("tbody tr a").first.click()
    page.get_by_role("link", name=re.compile("^history")).click()
    page.reload()
    expect(page.locator(".tabs [aria-current]")).to_contain_text("history")
    page.go_back()
    page.go_back()
    expect(heads).to_have_text(names)


def test_a_search_is_saved_and_removed(page: Page, work: SimpleNamespace) -> None:
    page.goto(f"{LIST}?q=status:failed")
    page.get_by_role("button", name="Save this search").click()
    page.get_by_role("dialog").get_by_label("Name").fill("red ones")
    page.keyboard.press("Enter")
    saved = page.get_by_role("link", name="red ones")
    expect(saved).to_have_attribute("aria-current", "true")
    page.get_by_role("button", name="Remove one").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove the search").click()
    expect(page.get_by_text("Removed: red ones.")).to_be_visible()
    expect(saved).to_have_count(0)


def test_output_is_on_the_page_while_it_is_printed_and_a_cancellation_asks_why(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    script = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.5; done"
    id = muster.submit("core.shell", {"argv": ["sh", "-c", script]})
    page.goto(page_of(id))
    page.get_by_role("link", name="stdout").click()
    expect(page.locator("pre.output")).to_contain_text("line 5")
    page.get_by_role("button", name="Cancel …").click()
    dialog = page.get_by_role("dialog", name="Stop this execution?")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Cancel …").click()
    dialog.get_by_role("button", name="Cancel the execution").click()
    expect(dialog).to_be_visible()  # it asks for the reason
    dialog.get_by_label("Reason").fill("the wrong printer")
    page.keyboard.press("Enter")
    expect(page.locator("h1 .badge")).to_have_text("cancelled", timeout=2 * LOOK_MS)
    expect(page.locator(".verdict")).to_contain_text("the wrong printer")


def test_what_failed_runs_again_with_changes_and_both_are_linked(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto(page_of(work.failed))
    fills = page.locator(".lane rect").evaluate_all("all => all.map(e => getComputedStyle(e).fill)")
    assert len(set(fills)) == 3, "waiting, in the queue and running look different"
    assert all("#lane-" in fill for fill in fills)
    page.get_by_role("link", name="Run with changes").click()
    message = page.get_by_label("message")
    expect(message).to_have_value(MESSAGE)
    message.fill("no paper")
    expect(page.locator("#commands pre").first).to_contain_text('"no paper"')
    page.get_by_role("button", name="Run core.fail").click()
    expect(page.get_by_text("Runs again what")).to_be_visible()
    again = page.url
    page.locator("main").get_by_role("link", name=str(work.failed)).click()
    page.get_by_role("link", name=again.rsplit("/", 1)[1]).click()
    expect(page.locator(".verdict")).to_contain_text("no paper")


def test_what_the_schema_refuses_is_refused_at_its_field_and_then_runs(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto("/console/run")
    page.get_by_label("Action", exact=True).fill("seconds")
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name="core.sleep").click()
    seconds = page.get_by_label("seconds")
    seconds.fill("a while")
    page.get_by_role("button", name="Run core.sleep").click()
    expect(page.locator(".refusal")).to_contain_text("found 'a while'")
    expect(seconds).to_have_value("a while")
    seconds.fill("0.2")
    page.get_by_role("button", name="Run core.sleep").click()
    expect(page.locator("h1 .badge")).to_have_text("completed", timeout=2 * LOOK_MS)


def test_hostile_output_is_text_and_the_policy_refuses_nothing(
    page: Page, work: SimpleNamespace
) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    for tab in ("stdout", "result", "parameters", "history"):
        page.goto(page_of(work.hostile, tab))
        expect(page.locator("#pulse")).to_have_text("live")
    page.goto(page_of(work.hostile, "stdout"))
    expect(page.locator("pre.output")).to_contain_text(
        "<script>alert(1)</script>␛[31mred<U+202E>rtl"
    )
    assert said == []


def paths(work: SimpleNamespace) -> list[str]:
    return [
        LIST,
        f"{LIST}?q=status:faild",
        f"{LIST}?q=created:>9d",
        *(page_of(work.hostile, tab) for tab in ("stdout", "letters", "history")),
        "/console/run",
        "/console/run/core.ask",
        f"/console/run/core.shell?from={work.hostile}",
        f"{page_of(work.failed)}#again",
        f"{LIST}?q=status:open#save-search",
    ]


@pytest.mark.slow
def test_every_page_is_without_fault_and_as_wide_as_its_window(
    themed: tuple[Page, Page], work: SimpleNamespace
) -> None:
    faults = {}
    for page in themed:
        for path in paths(work):
            page.goto("about:blank")  # else a fragment alone would not load the page
            page.goto(path)
            expect(page.locator("#pulse")).to_have_text("live")
            assert chromium.overhang(page) == 0, path
            faults[path] = chromium.faults(page)
    assert not any(faults.values()), faults
