"""Charts, causes and triage in a real browser, on a real installation."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser import chromium
from tests.scenarios.installation import Installation

DECLINED = 20
NOT_FOUND = 404


@pytest.fixture(scope="module")
def failures(muster: Installation) -> list[Any]:
    """Failures of two kinds, and twenty entries of one cause."""
    declined = [{"parameters": {"message": f"declined for order {n}"}} for n in range(DECLINED)]
    ids = muster.submit_many(declined, "core.fail")
    other = muster.submit_many([{"parameters": {"message": "out of paper"}}], "core.fail")
    muster.wait_for_ends([*ids, *other])
    opened = [
        ["dlq", "open", "--execution", str(id), "--detail", f"declined for order {number}"]
        for number, id in enumerate(ids)
    ]
    muster.client.call("printed", commands=opened)
    return [*ids, *other]


def test_failures_of_one_kind_become_one_cause_and_its_list_has_as_many_rows(
    page: Page, failures: list[Any]
) -> None:
    page.goto("/console/causes")
    row = page.locator("tbody tr", has_text="declined for order #")
    expect(row.locator("strong")).to_have_text(str(DECLINED))
    page.goto("/console/")
    chart = page.get_by_role("group", name=re.compile("Ended, by outcome"))
    expect(chart.get_by_role("img")).to_have_accessible_name(re.compile(f"{DECLINED + 1} failed"))
    chart.get_by_text("As a table").click()
    expect(chart.get_by_role("table")).to_be_visible()
    page.get_by_role("link", name=re.compile("declined for order #")).click()
    expect(page.locator("tbody tr[id^=x-]")).to_have_count(DECLINED)


@pytest.mark.slow
def test_no_page_breaks_a_rule_or_is_wider_than_its_window(
    page: Page, phone: Page, failures: list[Any]
) -> None:
    for looked in (page, phone):
        looked.goto("/console/triage")
        cause = looked.locator("tbody tr a").first.get_attribute("href") or ""
        looked.goto(cause)
        entry = looked.locator("tbody tr a").first.get_attribute("href") or ""
        looked.goto("/console/causes")
        failed = looked.locator("tbody tr a").first.get_attribute("href") or ""
        for url in ("/console/?charts=1h", "/console/causes", failed, "/console/triage",
                    f"{cause}#close", f"{entry}#note"):  # fmt: skip
            looked.goto(url)
            assert chromium.overhang(looked) == 0, url
            for theme in chromium.THEMES:
                looked.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
                assert chromium.faults(looked) == [], (url, theme)


def test_what_somebody_opened_stays_open_while_the_page_changes(
    page: Page, muster: Installation, failures: list[Any]
) -> None:
    page.goto("/console/")
    expect(page.locator("#pulse")).to_have_text("live")
    page.get_by_text("As a table").first.click()
    accepted = page.locator("section", has_text="Accepted in").locator(".count").first
    before = int(accepted.inner_text())
    muster.wait_for_end(muster.submit("core.echo", {"message": "x"}))
    expect(accepted).to_have_text(str(before + 1))
    expect(page.locator("details").first).to_have_attribute("open", "")


def late(route: Route) -> None:
    """The page asks for itself, and is not there any more, before its form is answered."""
    page = route.request.frame.page
    answer = route.fetch(max_redirects=0)
    page.wait_for_event("response", predicate=lambda each: each.status == NOT_FOUND)
    route.fulfill(response=answer)


def test_twenty_entries_of_one_cause_are_closed_by_keys_alone(
    page: Page, failures: list[Any]
) -> None:
    page.goto("/console/")
    expect(page.locator("#pulse")).to_have_text("live")
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_label("Note")).to_be_focused()
    page.keyboard.type("the cards have expired")
    page.route("**/close", late)
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"Closed {DECLINED}: manually_resolved.")).to_be_visible()
    expect(page.get_by_text("Nothing is to be looked into")).to_be_visible()
