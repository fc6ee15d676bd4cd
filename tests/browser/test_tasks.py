"""The console's pages of tasks in a real browser, on a real installation."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import chromium
from tests.browser.conftest import LOOK_MS
from tests.scenarios.installation import Installation

ITEMS = [{"sku": "a", "price": 2, "count": 2}]
EDGES = """
() => Object.fromEntries([...document.querySelectorAll(".m-gantt rect[id]")].map((rect) => {
  const box = rect.getBoundingClientRect();
  return [rect.id, [box.left, box.right]];
}))
"""
"""The left and the right of each bar in the window, by its id."""
ORDER = {"order": "o-1", "items": ITEMS, "card": "declined"}


def blocked(muster: Installation, key: str) -> Any:
    """A task whose step `charge` has failed for good."""
    id = muster.client.call("request_task", name="order_fulfilment", context=ORDER, key=key)
    muster.wait_for(
        lambda: muster.client.call("task", id=id).state == "blocked_by_failures", "it goes on"
    )
    return id


@pytest.fixture(scope="module")
def work(muster: Installation) -> SimpleNamespace:
    """A task that is blocked, and one that fanned out and has completed."""
    crowd = muster.client.call("request_task", name="rows", context={"rows": 1500}, key=None)
    stuck = blocked(muster, "first")
    muster.wait_for(lambda: muster.client.call("task", id=crowd).state == "complete", "it goes on")
    return SimpleNamespace(stuck=stuck, crowd=crowd)


def is_live(page: Page) -> None:
    expect(page.locator("#pulse")).to_have_text("live")


@pytest.mark.slow
def test_a_blocked_task_is_repaired_without_leaving_its_page_and_its_investigation_closes(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    task = blocked(muster, "repaired")
    page.goto(f"/console/tasks/{task}?view=gantt")
    expect(page.get_by_text(re.compile("Blocked by charge since .*declined for 4"))).to_be_visible()
    is_live(page)
    page.get_by_role("button", name="Give its result …").click()
    dialog = page.get_by_role("dialog", name="Complete charge by hand?")
    result = dialog.get_by_label("Result, as JSON")
    expect(result).to_be_focused()
    result.fill("{")
    dialog.get_by_label("Reason").fill("paid in cash")
    dialog.get_by_role("button", name="Give its result").click()
    expect(dialog).to_be_visible()  # the browser has refused what is not JSON
    result.fill('{"payment": "cash"}')
    expect(dialog.get_by_label("Then close the investigation")).to_be_checked()
    dialog.get_by_role("button", name="Give its result").click()
    expect(page.get_by_text("charge is complete. Its investigation is closed.")).to_be_visible()
    # the page stays, and moves on by itself
    assert page.url.endswith(f"/console/tasks/{task}?view=gantt&step=charge")
    expect(page.locator("h1 .badge")).to_have_text("complete", timeout=2 * LOOK_MS)
    expect(page.locator("#runs-ship-1")).to_be_attached()
    entries = [each for each in muster.dlq_entries() if each.subject_id == task]
    assert [each.resolution_status for each in entries] == ["manually_resolved"]


def test_escape_and_go_back_change_nothing(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto(f"/console/tasks/{work.stuck}")
    is_live(page)
    opener = page.get_by_role("button", name="Count as done …")
    for leave in (
        lambda: page.keyboard.press("Escape"),
        lambda: page.get_by_role("button", name="Go back").click(),
    ):
        opener.click()
        page.get_by_role("dialog").get_by_label("Reason").fill("x")
        leave()
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(opener).to_be_focused()
    assert muster.client.call("task", id=work.stuck).state == "blocked_by_failures"


def test_the_graph_is_walked_with_tab_and_arrows_and_says_what_each_step_waits_for(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto(f"/console/tasks/{work.stuck}")
    is_live(page)
    expect(page.get_by_role("group", name="Graph of the steps")).to_match_aria_snapshot(
        '- group "Graph of the steps":\n'
        "  - 'link \"reserve: complete, 1 of 3 attempts\"'\n"
        "  - 'link \"charge: error, 3 of 3 attempts\"'\n"
        "  - 'link \"wrap: complete\"'\n"
        "  - 'link \"ship: pending, waits for charge\"'\n"
    )
    page.locator("[data-walk]").focus()
    page.keyboard.press("Tab")
    assert chromium.focused(page).startswith("reserve")
    page.keyboard.press("Tab")
    assert chromium.focused(page).startswith("charge")
    for key, name in (
        ("ArrowRight", "ship"),
        ("ArrowLeft", "charge"),
        ("ArrowDown", "wrap"),
        ("ArrowUp", "charge"),
        ("ArrowLeft", "reserve"),
        ("ArrowLeft", "reserve"),
        ("ArrowRight", "charge"),
        ("ArrowRight", "ship"),
    ):
        page.keyboard.press(key)
        assert chromium.focused(page).startswith(name), key
    page.keyboard.press("Enter")
    page.wait_for_url("**step=ship")
    expect(page.get_by_role("heading", name="ship")).to_be_visible()
    expect(page.locator("#step")).to_contain_text("waits for charge")


def test_the_bars_of_the_gantt_stand_where_the_times_of_the_api_say(
    page: Page, muster: Installation, address: str, work: SimpleNamespace
) -> None:
    page.goto(f"/console/tasks/{work.stuck}?view=gantt")
    is_live(page)
    token = muster.token("gantt")
    api = page.context.request

    def get(path: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return api.get(f"{address}/api/v1/tasks/{work.stuck}{path}", headers=headers).json()

    listed = get("/workflow_steps")["items"]
    steps = [get(f"/workflow_steps/{each['step_uuid']}") for each in listed]
    tries = [
        (step["name"], number, each)
        for step in steps
        for number, each in enumerate(step["executions"], 1)
    ]
    assert len(tries) == 4
    edges = page.evaluate(EDGES)
    plot = page.evaluate("document.querySelector('.m-tick').getBoundingClientRect().left")
    begin = millis(page, get("")["created_at"])
    end = max(millis(page, each["ended_at"]) for _, _, each in tries)
    pixels = 900 / (end - begin)
    for name, number, each in tries:
        times = [millis(page, each[key]) for key in ("created_at", "started_at", "ended_at")]
        at = [plot + (time - begin) * pixels for time in times]
        assert edges[f"waits-{name}-{number}"] == pytest.approx(at[:2], abs=1)
        assert edges[f"runs-{name}-{number}"] == pytest.approx(at[1:], abs=1)
    assert {"pauses-charge-2", "pauses-charge-3"} <= edges.keys()


def millis(page: Page, text: str) -> float:
    return float(page.evaluate("text => Date.parse(text)", text))


def test_each_view_has_an_address_that_lasts(page: Page, work: SimpleNamespace) -> None:
    page.goto(f"/console/tasks/{work.stuck}")
    tabs = page.get_by_role("navigation", name="Views of the task")
    for view in ("Gantt", "Steps", "Timeline"):
        tabs.get_by_role("link", name=view).click()
        page.wait_for_url(f"**view={view.lower()}")
        page.reload()
        expect(tabs.get_by_role("link", name=view)).to_have_attribute("aria-current", "page")
    page.go_back()
    expect(tabs.get_by_role("link", name="Steps")).to_have_attribute("aria-current", "page")


@pytest.mark.slow
def test_pages_and_dialogs_of_tasks_are_without_fault_and_as_wide_as_their_window(
    themed: tuple[Page, Page], work: SimpleNamespace
) -> None:
    one = f"/console/tasks/{work.stuck}"
    paths = [
        "/console/tasks", one, f"{one}?view=gantt", f"{one}?view=timeline",
        f"{one}?view=steps#complete-charge", f"/console/tasks/{work.crowd}", "/console/templates",
        "/console/templates/examples/order_fulfilment/1.0.0",
    ]  # fmt: skip
    wide = themed[0]
    for page in themed:
        for path in paths:
            page.goto(path)
            if "#" in path:
                expect(page.get_by_role("dialog")).to_be_visible()
            assert chromium.overhang(page) == 0, path
            # axe takes a second each time: on the phone where most is laid out in another way
            if page is wide or path in paths[:3]:
                assert chromium.faults(page) == [], path
