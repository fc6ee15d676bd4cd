"""Who has never seen the console finds out what is wrong, mends it and proves it, by following what
the pages offer: nobody types an address or an id."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import LOOK_MS
from tests.browser.test_tasks import blocked
from tests.scenarios.installation import Installation


@pytest.fixture(scope="module")
def trouble(muster: Installation) -> None:
    """One task that is blocked, between much that goes well."""
    done = muster.submit_many([{"parameters": {"message": "hello"}}] * 20, "core.echo")
    blocked(muster, "newcomer")
    muster.wait_for_ends(done)


@pytest.mark.usefixtures("trouble")
@pytest.mark.slow
def test_six_questions_are_answered_by_following_links(page: Page) -> None:
    page.goto("/console/")

    # what is wrong?
    strip = page.get_by_text(re.compile(r"\d+ to look into"))
    expect(strip).to_be_visible()
    page.get_by_role("link", name="triage", exact=True).click()
    page.get_by_role("link", name=re.compile("charge: .*declined")).click()
    page.locator("tbody tr").get_by_role("link").first.click()
    page.get_by_role("region", name="What to do").get_by_role("link").click()
    expect(page.get_by_text(re.compile("Blocked by charge since .*declined"))).to_be_visible()
    task = page.url

    # which worker?
    page.get_by_role("link", name="its latest execution").click()
    expect(page.locator("h1 .badge")).to_have_text("failed")
    page.get_by_role("link", name="w1").click()
    expect(page.get_by_role("heading", name="Slots now")).to_be_visible()

    # which cause, and how often?
    page.get_by_role("link", name="Now", exact=True).click()
    page.get_by_role("link", name=re.compile("declined for #")).click()
    expect(page.locator("tbody tr[id^=x-]")).to_have_count(3)

    # what waits for what?
    page.get_by_role("link", name="Tasks", exact=True).click()
    page.get_by_role("row", name=re.compile("blocked_by_failures")).get_by_role(
        "link"
    ).first.click()
    expect(page.get_by_role("link", name="ship: pending, waits for charge")).to_be_attached()
    assert page.url.split("?")[0] == task.split("?")[0]

    # repair it
    page.get_by_role("button", name="Count as done …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("paid in cash")
    page.keyboard.press("Enter")
    expect(page.locator("h1 .badge")).to_have_text("complete", timeout=2 * LOOK_MS)

    # prove it
    page.get_by_role("link", name="Timeline").click()
    expect(page.get_by_text("paid in cash").first).to_be_visible()
    page.get_by_role("link", name="Triage", exact=True).click()
    expect(page.get_by_text("Nothing is to be looked into")).to_be_visible()
    page.get_by_role("link", name="Access", exact=True).click()
    page.get_by_role("link", name="Audit", exact=True).click()
    expect(page.get_by_role("row", name=re.compile("steps.repair.*user:ada"))).to_be_visible()
