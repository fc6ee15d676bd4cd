"""The Chromium of this machine, driven by Playwright, and what tests ask of a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

AS_ROOT = ["--no-sandbox", "--disable-dev-shm-usage"]
"""Chromium's own sandbox needs a user that is not root; it only ever sees pages of the tests."""

WIDE, PHONE = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844)
THEMES = ("light", "dark")


class NoBrowser(Exception):
    """No Chromium was found."""


def path() -> str:
    """Where it is. Raises NoBrowser."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise NoBrowser(
        f"no browser: none of {', '.join(NAMES)} is on PATH; deploy/install-test-servers.sh, as "
        "root on Debian, installs chromium"
    )


@contextmanager
def started() -> Iterator[Browser]:
    """A browser. Raises NoBrowser."""
    executable = path()
    # while it runs, this thread has an event loop, from which Django refuses to work
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=AS_ROOT)
        try:
            yield browser
        finally:
            browser.close()


def faults(page: Page, *rules: str) -> list[str]:
    """What axe finds wrong with a page, by these rules or by all: the rule, and the first element
    that breaks it."""
    # a colour on its way to another has no contrast of its own
    page.emulate_media(reduced_motion="reduce")
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found: list[dict[str, Any]] = Axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def overhang(page: Page) -> int:
    """By how many pixels a page is wider than its window."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


def focused(page: Page) -> str:
    """What has the focus: its name for a screen reader or for the form, or its text. Empty if
    nothing has it."""
    words = "e.getAttribute('aria-label') || e.name || e.textContent.trim()"
    return str(page.evaluate(f"(e => e === document.body ? '' : {words})(document.activeElement)"))
