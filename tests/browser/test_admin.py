"""The admin in a real browser: what an operator does there, with and without a mouse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser import chromium
from tests.browser.conftest import LOOK_MS, PASSWORD
from tests.scenarios.installation import REPOSITORY, Installation

EXECUTIONS = "/admin/orchestrator/execution/"
AUTOMATION = ("rule", "event", "enforcement", "trigger", "triggertype")
ENTRIES = "/admin/orchestrator/dlqentry/"
MESSAGE = "no route to printer 7"
CONTRAST = ("color-contrast",)
"""All in which a dark page differs."""


@pytest.fixture(scope="module")
def work(muster: Installation) -> SimpleNamespace:
    """What the pages show: executions that completed, failed and still run, entries, a task."""
    failing = [{"parameters": {"message": MESSAGE}}] * 4
    done = muster.submit("core.echo", {"message": "hello"})
    failed = muster.submit_many(failing, "core.fail")
    task = muster.client.call("request_task", name="diamond", context={"even_number": 6}, key=None)
    muster.wait_for_ends([done, *failed])
    commands = [["dlq", "open", "--execution", str(id), "--detail", "look"] for id in failed]
    muster.client.call("printed", commands=commands)
    held = muster.submit_note("held", is_gated=True)
    muster.wait_for_start("held")
    muster.command("pack", "install", str(REPOSITORY / "packs" / "watch"))
    payload = '{"service": "shop", "version": "7", "environment": "production"}'
    event = muster.command("event", "send", "watch.deployed", "--payload", payload).strip()
    return SimpleNamespace(event=event, done=done, failed=failed, held=held, task=task)


def path_of(id: Any) -> str:
    return f"{EXECUTIONS}{id}/change/"


def event_path(work: SimpleNamespace) -> str:
    return f"/admin/automation/event/{work.event}/change/"


def paths(work: SimpleNamespace) -> list[str]:
    """Every kind of page."""
    core = ["execution", "dlqentry", "investigationqueue", "worker", "pack", "action"]
    return [
        "/admin/",
        *(f"/admin/orchestrator/{each}/" for each in core),
        *(f"/admin/orchestrator/{each}/1/change/" for each in ("dlqentry", "worker", "action")),
        path_of(work.failed[0]),
        path_of(work.held),
        "/admin/workflows/task/",
        f"/admin/workflows/task/{work.task}/change/",
        *(f"/admin/automation/{each}/" for each in AUTOMATION),
        *(f"/admin/automation/{each}/1/change/" for each in ("rule", "trigger", "triggertype")),
        f"/admin/automation/rule/1/test?event={work.event}",
        event_path(work),
        "/admin/access/apitoken/",
        "/admin/access/apitoken/add/",
        "/admin/access/auditevent/",
        "/admin/django_celery_beat/periodictask/",
    ]


def one_of_a_kind(work: SimpleNamespace) -> list[str]:
    """An overview, a list, a page, a page with a graph, and a form."""
    task = f"/admin/workflows/task/{work.task}/change/"
    test = f"/admin/automation/rule/1/test?event={work.event}"
    form = "/admin/access/apitoken/add/"
    return ["/admin/", EXECUTIONS, path_of(work.held), task, form, event_path(work), test]


# --- what an operator does ------------------------------------------------------------------------


def test_a_number_of_the_overview_leads_to_what_failed_and_it_runs_again(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto("/admin/")
    page.locator("a[href*='status=failed&within=1h']").click()
    rows = page.locator(".m-rows tbody tr")
    expect(rows).to_have_count(len(work.failed))
    expect(rows.first).to_contain_text(MESSAGE)
    rows.first.get_by_role("link").first.click()
    page.get_by_role("button", name="Run again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Run this again?")
    dialog.get_by_role("button", name="Run again").click()
    expect(page.get_by_text("It runs again: this is the new execution")).to_be_visible()
    id = page.url.rsplit("/", 3)[1]
    assert id not in map(str, work.failed)
    muster.wait_for(lambda: str(id) in map(str, muster.executions()), "it is not there")


@pytest.mark.parametrize("number", ["1", "123,456"])
def test_each_number_of_the_overview_stands_below_its_name(
    page: Page, phone: Page, work: SimpleNamespace, number: str
) -> None:
    for each in (page, phone):
        each.goto("/admin/")
        each.evaluate(
            "text => document.querySelectorAll('.m-number').forEach(e => e.textContent = text)",
            number,
        )
        cards = each.locator(".m-card").all()
        assert cards
        for card in cards:
            name = card.locator(".m-badge").bounding_box()
            value = card.locator(".m-number").bounding_box()
            assert name is not None
            assert value is not None
            assert abs(name["x"] - value["x"]) < 1
            assert name["y"] + name["height"] <= value["y"]
        assert chromium.overhang(each) == 0


def test_an_execution_is_cancelled_with_a_reason_and_not_without(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto(path_of(work.held))
    page.get_by_role("button", name="Cancel execution").click()
    dialog = page.get_by_role("dialog")
    stop = dialog.get_by_role("button", name="Stop it")
    stop.click()
    expect(dialog.get_by_text("This field is required")).to_be_visible()
    assert muster.execution(work.held).status == "running"
    dialog.get_by_label("Reason").fill("the wrong printer")
    stop.click()
    expect(page.get_by_text("the wrong printer").first).to_be_visible()
    assert muster.wait_for_end(work.held).cancel_reason == "the wrong printer"


def test_investigations_are_closed_together_with_a_note_and_not_without(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    page.goto(f"{ENTRIES}?resolution_status__exact=pending")
    ticks = page.locator(".action-select")
    ticks.nth(0).check()
    ticks.nth(1).check()
    page.get_by_label("Select action to run").select_option(label="Close selected: not needed …")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("heading", name="Cancel these investigations?")).to_be_visible()
    assert chromium.faults(page) == []
    close = page.get_by_role("button", name="Close as not needed")
    close.click()
    expect(page.get_by_text("This field is required")).to_be_visible()
    assert {entry.resolution_status for entry in muster.dlq_entries()} == {"pending"}
    page.get_by_label("Note").fill("a drill")
    close.click()
    expect(page.get_by_text("Closed: 2 of 2.")).to_be_visible()
    closed = [each for each in muster.dlq_entries() if each.resolution_status == "cancelled"]
    assert [entry.notes[0]["text"] for entry in closed] == ["a drill", "a drill"]


def test_a_rule_is_tested_with_an_old_event_and_disabled_with_a_reason(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto(event_path(work))
    rules = page.locator("section", has_text="Rules, criterion by criterion")
    expect(rules).to_contain_text("watch.deployed")
    expect(rules).to_contain_text("holds")
    rules.get_by_role("link", name="test it as it is now").click()
    expect(page.get_by_text("shop is now 7")).to_be_visible()
    page.get_by_label("Or the id of an event").fill("")
    page.get_by_label("Payload").fill('{"environment": "test"}')
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("does not hold")).to_be_visible()
    page.get_by_role("link", name="Go back").click()
    page.get_by_role("button", name="Disable").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("too loud")
    dialog.get_by_role("button", name="Disable").click()
    expect(page.get_by_text("Disabled: too loud")).to_be_visible()


# --- without a mouse, on a phone, with a screen reader --------------------------------------------


def test_the_keyboard_reaches_a_row_and_a_dialog_takes_and_gives_back_the_focus(
    page: Page, work: SimpleNamespace
) -> None:
    page.goto(f"{EXECUTIONS}?status=failed")
    page.keyboard.press("Tab")
    assert chromium.focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    link = page.locator(".m-rows tbody tr a").first
    _tab_to(page, link, most=20)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{EXECUTIONS}*/change/")
    button = page.get_by_role("button", name="Run again")
    _tab_to(page, button, most=40)
    page.keyboard.press("Space")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("[role=dialog]:focus-within")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()
    expect(button).to_be_focused()


def test_a_dialog_takes_the_focus_on_a_machine_that_draws_late(
    page: Page, work: SimpleNamespace
) -> None:
    page.add_init_script(
        "const draw = requestAnimationFrame;"
        "requestAnimationFrame = each => setTimeout(() => draw(each), 300);"
    )
    page.goto(f"{EXECUTIONS}{work.failed[0]}/change/")
    button = page.get_by_role("button", name="Run again")
    button.click()
    expect(page.locator("[role=dialog]:focus-within")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()
    expect(button).to_be_focused()


def _tab_to(page: Page, wanted: Any, *, most: int) -> None:
    """Press Tab until an element has the focus, and shows it."""
    for _ in range(most):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        shadow = page.evaluate("getComputedStyle(document.activeElement).boxShadow")
        assert (outline, shadow) != ("none", "none"), chromium.focused(page)
        if wanted.evaluate("e => e === document.activeElement"):
            return
    raise AssertionError(f"{most} tabs lead to {chromium.focused(page)!r}")


def test_no_page_is_wider_than_a_phone(phone: Page, work: SimpleNamespace) -> None:
    wide = {}
    for path in paths(work):
        phone.goto(path)
        wide[path] = chromium.overhang(phone)
    assert {path: pixels for path, pixels in wide.items() if pixels > 0} == {}


def test_no_list_is_cut_off_on_a_laptop(page: Page, work: SimpleNamespace) -> None:
    cut_off = {}
    core = ("execution", "dlqentry", "investigationqueue", "worker")
    for name in (*(f"orchestrator/{each}" for each in core), "workflows/task"):
        page.goto(f"/admin/{name}/")
        right_edges = "e => [e, e.parentElement].map(e => e.getBoundingClientRect().right)"
        table, place = page.locator(".m-rows").evaluate(right_edges)
        cut_off[name] = round(max(0, table - min(place, chromium.WIDE["width"])))
    assert cut_off == dict.fromkeys(cut_off, 0)


def test_a_long_reason_without_blanks_makes_no_page_wider(
    page: Page, muster: Installation, work: SimpleNamespace
) -> None:
    (id,) = muster.submit_many([{"parameters": {}, "reason": "x" * 200}], "core.noop")
    page.goto(path_of(id))
    history = page.locator(".m-event-more", has_text="x" * 200)
    expect(history.first).to_be_visible()
    assert history.first.evaluate("e => e.scrollWidth - e.clientWidth") == 0
    assert chromium.overhang(page) == 0


def test_a_page_that_is_left_open_says_how_old_it_is(page: Page, work: SimpleNamespace) -> None:
    page.clock.install()
    page.goto(EXECUTIONS)
    old = page.get_by_text("Load it again")
    expect(old).not_to_be_visible()
    page.clock.fast_forward("01:30")
    expect(page.get_by_text("This page is 1 min old.")).to_be_visible()
    old.click()
    expect(old).not_to_be_visible()


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", CONTRAST)])
def test_axe_finds_nothing_wrong(
    browser: Browser,
    address: str,
    session: Any,
    work: SimpleNamespace,
    scheme: Any,
    rules: tuple[str, ...],
) -> None:
    found = {}
    with browser.new_context(base_url=address, color_scheme=scheme) as stranger:
        page = stranger.new_page()
        page.goto("/admin/")
        found["login"] = chromium.faults(page, *rules)
        page.get_by_label("Username").fill("nobody")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_text("Please enter the correct username")).to_be_visible()
        found["login refused"] = chromium.faults(page, *rules)
    with browser.new_context(
        base_url=address, color_scheme=scheme, storage_state=session
    ) as context:
        page = context.new_page()
        for path in one_of_a_kind(work):
            page.goto(path)
            found[path] = chromium.faults(page, *rules)
        page.goto(path_of(work.failed[0]))
        page.get_by_role("button", name="Run again").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        found["dialog"] = chromium.faults(page, *rules)
    assert {path: faults for path, faults in found.items() if faults} == {}


# --- the last one: it leaves the installation without an executor ---------------------------------


def _wait_for_requests(page: Page, held: list[Route], number: int) -> None:
    for _ in range(LOOK_MS // 100):
        if len(held) < number:
            page.wait_for_timeout(100)
    assert len(held) == number


@pytest.mark.slow
def test_all_that_match_a_filter_are_changed_batch_by_batch_without_a_click_between(
    page: Page, muster: Installation
) -> None:
    muster.service("executor").kill()  # nothing moves them on
    ids = muster.submit_many([{"parameters": {}, "correlation_id": "many"}] * 501, "core.noop")
    page.goto(f"{EXECUTIONS}?q=many&status=open")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("link", name="Select all 501").click()
    page.get_by_label("Select action to run").select_option(label="Cancel selected executions …")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("501 executions")).to_be_visible()
    page.get_by_label("Reason").fill("too many")
    batches: list[Route] = []
    page.route(f"**{EXECUTIONS}**", lambda route: batches.append(route))
    page.get_by_role("button", name="Stop them").click(no_wait_after=True)
    _wait_for_requests(page, batches, 1)
    batches[0].continue_()
    expect(page.get_by_text("500 of 501 executions")).to_be_visible(timeout=4 * LOOK_MS)
    # it asks for the next batch by itself; while that is held, no script of ours would run
    _wait_for_requests(page, batches, 2)
    batches[1].abort("aborted")
    assert chromium.faults(page) == []
    page.locator("form.m-page").evaluate("form => form.submit()")
    _wait_for_requests(page, batches, 3)
    batches[2].continue_()
    page.unroute_all()
    expect(page.get_by_text("Cancellations accepted: 501 of 501.")).to_be_visible()
    assert {row.status for row in muster.executions(ids).values()} == {"cancelled"}
