"""Pages of automation, inquiries and access in a real browser, on a real installation."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import chromium
from tests.browser.conftest import log_in
from tests.scenarios.installation import REPOSITORY, Installation

YES_OR_NO = {
    "properties": {"approved": {"type": "boolean"}, "why": {"type": "string"}},
    "required": ["approved"],
}


WIDE_QUESTION = {
    "properties": {
        "which": {"enum": ["the one that was sent to the printer yesterday " * 3, "none"]},
        "a" * 90: {"type": "integer", "description": "b" * 90},
    }
}


def ask(muster: Installation, prompt: str, schema: Any = YES_OR_NO) -> str:
    """The path of a new inquiry."""
    muster.submit("core.ask", {"prompt": prompt, "schema": schema, "ttl_seconds": 3600})
    muster.wait_for(lambda: prompt in muster.command("inquiry", "list", "--json"), "an inquiry")
    listed = muster.command("inquiry", "list", "--json")
    found = re.findall(r'"id": "([0-9a-f-]{36})"[^{}]*?"prompt": "([^"]*)"', listed)
    id = next(id for id, text in found if text == prompt)
    return f"/console/inquiries/{id}"


def deploy(muster: Installation, where: str) -> str:
    """The id of a new event."""
    payload = f'{{"service": "shop", "version": "1.4.0", "environment": "{where}"}}'
    sent = muster.command("event", "send", "watch.deployed", "--payload", payload)
    found = re.search(r"[0-9a-f-]{36}", sent)
    assert found is not None
    return found[0]


@pytest.fixture(scope="module")
def watched(muster: Installation) -> SimpleNamespace:
    """Rules, two events of which one matched, a policy, a key, and an open inquiry."""
    muster.command("pack", "install", str(REPOSITORY / "packs" / "watch"))
    events = {where: deploy(muster, where) for where in ("production", "test")}
    muster.wait_for(lambda: "executed" in muster.command("enforcement", "list"), "an answer")
    muster.command("policy", "create", "one-deploy", "--kind", "concurrency", "--limit", "1")
    return SimpleNamespace(events=events, inquiry=ask(muster, "Deploy 1.4.0 to production?"))


def pages(watched: SimpleNamespace) -> list[str]:
    lists = ("rules", "enforcements", "events", "inquiries", "schedules", "sensors", "policies")
    below = ("access", "access/identities", "access/keys", "access/audit", "policies/one-deploy")
    production = watched.events["production"]
    return [
        *(f"/console/{each}" for each in (*lists, *below)),
        f"/console/rules/watch.deployed?event={production}",
        f"/console/events/{production}",
        watched.inquiry,
    ]


def is_live(page: Page) -> None:
    expect(page.locator("#pulse")).to_have_text("live")


def test_a_past_event_says_criterion_by_criterion_what_held_by_links_alone(
    page: Page, watched: SimpleNamespace
) -> None:
    page.goto("/console/")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.get_by_role("link", name="watch.deployed", exact=True).click()
    other = watched.events["test"]
    page.get_by_role("link", name=f"Test it with {other}").click()
    criteria = page.get_by_role("group", name="Criteria of watch.deployed")
    expect(criteria.get_by_role("row", name="trigger.environment")).to_contain_text("does not hold")
    page.get_by_role("link", name="this event").click()
    expect(
        page.get_by_role("heading", name=re.compile("watch.deployed.*does not match"))
    ).to_be_visible()


def test_an_inquiry_is_answered_once_and_the_second_answer_is_told(
    browser: Browser, address: str, session: Any, page: Page, muster: Installation,
    watched: SimpleNamespace,
) -> None:  # fmt: skip
    path = ask(muster, "Pay the bill?")
    other = browser.new_context(base_url=address, storage_state=session).new_page()
    for each in (page, other):
        each.goto(path)
        is_live(each)
        each.get_by_label("approved").select_option("yes")
    other.get_by_label("why").fill("typed before the other answered")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_text("Answered. What waited for it goes on.")).to_be_visible()
    expect(other.locator("h1 .badge")).to_have_text("responded")  # by itself
    expect(other.get_by_label("why")).to_have_value("typed before the other answered")
    other.get_by_role("button", name="Answer").click()
    expect(other.get_by_role("alert")).to_contain_text("was answered by user:ada at ")
    other.context.close()


def test_a_rule_is_disabled_and_enabled_by_its_dialogs(
    page: Page, watched: SimpleNamespace
) -> None:
    page.goto("/console/rules/watch.failed")
    is_live(page)
    page.get_by_role("button", name="Disable …").click()
    dialog = page.get_by_role("dialog", name="Disable watch.failed?")
    dialog.get_by_role("button", name="Go back").click()
    expect(page.locator("h1 .badge")).to_have_text("enabled")
    page.get_by_role("button", name="Disable …").click()
    dialog.get_by_label("Reason").fill("stock is counted")
    page.keyboard.press("Enter")
    expect(page.locator("h1 .badge")).to_have_text("disabled")
    expect(page.get_by_text("Disabled: stock is counted")).to_be_visible()
    page.goto("/console/rules/watch.failed#enable")
    expect(page.get_by_role("dialog", name="Enable watch.failed?")).to_be_visible()


ALSO = """
name: also
trigger: {type: watch.deployed}
action: {ref: watch.note, parameters: {text: "{{ trigger.service }}"}}
"""


def test_one_dialog_asks_whichever_rule_was_pressed_again(
    page: Page, muster: Installation, watched: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "also.yaml").write_text(ALSO)
    (tmp_path / "pack.yaml").write_text('name: ops\nversion: "1.0"\n')
    muster.command("pack", "install", str(tmp_path))
    page.goto(f"/console/events/{deploy(muster, 'production')}")
    is_live(page)
    dialog = page.get_by_role("dialog", name="Ask again about this?")

    def button(ref: str) -> Locator:
        rule = page.get_by_role("region", name=re.compile(f"^{re.escape(ref)} "))
        return rule.get_by_role("button", name="Ask it again")

    for ref in ("watch.deployed", "ops.also"):
        button(ref).press("Enter")
        expect(dialog.get_by_label("Rule")).to_have_value(ref)
        expect(dialog.get_by_label("Reason")).to_be_focused()
        page.keyboard.press("Escape")
        expect(button(ref)).to_be_focused()
    button("ops.also").press("Enter")
    assert chromium.faults(page) == []
    dialog.get_by_label("Reason").fill("the note was lost")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Ops.also is asked about this new event")).to_be_visible()


def test_a_rule_and_an_answer_to_choose_fit_a_phone(
    phone: Page, muster: Installation, watched: SimpleNamespace
) -> None:
    for path in ("/console/rules/watch.deployed", ask(muster, "Which one?", WIDE_QUESTION)):
        phone.goto(path)
        assert chromium.overhang(phone) == 0, path
    form = phone.get_by_role("region", name="Your answer")
    assert form.evaluate("e => e.scrollWidth - e.clientWidth") == 0


def test_one_logs_in_and_gives_an_order_without_scripts(
    browser: Browser, address: str, watched: SimpleNamespace
) -> None:
    with browser.new_context(base_url=address, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto("/console/rules/watch.failed")
        log_in(page)
        page.goto("/console/rules/watch.failed")
        dialog = page.get_by_role("dialog", name="Disable watch.failed?")
        dialog.get_by_label("Reason").fill("no scripts here")
        dialog.get_by_role("button", name="Disable").click()
        expect(page.get_by_text("Disabled: no scripts here")).to_be_visible()
        page.get_by_role("dialog", name="Enable watch.failed?").get_by_label("Reason").fill("again")
        page.keyboard.press("Enter")
        expect(page.locator("h1 .badge")).to_have_text("enabled")


@pytest.mark.slow
def test_every_page_is_without_fault_and_as_wide_as_its_window(
    themed: tuple[Page, Page], watched: SimpleNamespace
) -> None:
    faults = {}
    for page in themed:
        for path in pages(watched):
            page.goto(path)
            faults[path] = chromium.faults(page)
            if over := chromium.overhang(page):
                faults[path].append(f"{over} px too wide")
    assert not any(faults.values()), faults
