"""Bulk orders in a real browser: from the plan to the receipt."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from tests.browser import chromium
from tests.scenarios.installation import Installation

ROWS = 120
QUERY = "correlation:bulk-browser"


@pytest.fixture(scope="module")
def ids(muster: Installation) -> list[UUID]:
    """More than a hundred that failed."""
    new: dict[str, Any] = {"parameters": {"message": "x"}, "correlation_id": "bulk-browser"}
    ids = muster.submit_many([new] * ROWS, "core.fail")
    muster.wait_for_ends(ids)
    return ids


def plan(verb: str, query: str = QUERY) -> str:
    return f"/console/bulk/new?verb={verb}&q={quote(query)}#order"


def test_escape_and_go_back_order_nothing(page: Page, ids: list[UUID]) -> None:
    page.goto(plan("again"))
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name=re.compile("^Run again")).click()
    dialog.get_by_role("button", name="Go back").click()
    expect(dialog).to_be_hidden()
    page.goto("/console/bulk")
    expect(page.get_by_text("No bulk order yet")).to_be_visible()


def test_pressed_twice_it_is_one_order_and_its_progress_moves_by_itself(
    page: Page, muster: Installation, ids: list[UUID]
) -> None:
    page.goto(plan("again"))
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the printer is back")
    dialog.get_by_label(re.compile("^Type 120")).fill(str(ROWS))
    dialog.get_by_role("button", name=f"Run again {ROWS}").dblclick()
    # the second press aborts the answer to the first one
    expect(page).to_have_url(re.compile(r"/console/bulk/[0-9a-f-]{36}$"))
    # without a reload
    expect(page.locator("h1 .badge")).to_have_text("done", timeout=60_000)
    expect(page.get_by_text(f"{ROWS} of {ROWS} looked at").first).to_be_visible()
    page.goto("/console/bulk")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert len(muster.executions()) == 2 * ROWS


@pytest.mark.slow
def test_axe_finds_nothing_and_nothing_scrolls_sideways(
    page: Page, phone: Page, ids: list[UUID]
) -> None:
    page.goto("/console/bulk")
    order = page.locator("tbody a").first.get_attribute("href") or "/console/bulk"
    for looked_at in (page, phone):
        for url in ("/console/bulk", order, plan("cancel"), plan("cancel", "status:faild")):
            looked_at.goto(url)
            expect(looked_at.locator("h1")).to_be_visible()
            for theme in chromium.THEMES:
                looked_at.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
                assert chromium.faults(looked_at) == [], f"{url} {theme}"
            assert chromium.overhang(looked_at) <= 0, url
