"""A browser that looks at the pages of a real, embedded installation."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import servers
from tests.browser import chromium
from tests.scenarios.installation import Backend, Installation

USER, PASSWORD = "ada", "a long enough pass phrase"
LOOK_MS = 15_000
"""The longest wait for anything on a page, on a machine that does much else."""

expect.set_options(timeout=LOOK_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.scenario)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # without one these tests fail, here as in CI: what nobody has looked at is not shown to work
    with chromium.started() as browser:
        yield browser


@pytest.fixture(scope="module")
def port() -> int:
    return servers.free_port()


@pytest.fixture(scope="module")
def address(port: int) -> str:
    """Where the installation is served."""
    return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def muster(port: int) -> Iterator[Installation]:
    """An embedded installation with an executor, a worker, and an administrator."""
    backend = Backend()
    # the pages say when their worker is silent, which a busy machine must not cause
    installation = Installation(backend, staleness_multiplier=50)
    try:
        installation.start_executor()
        installation.start_worker("w1")
        installation.start_beat()
        installation.start_api(port)
        installation.client.call("make_administrator", name=USER, password=PASSWORD)
        installation.ready()
        yield installation
    finally:
        installation.close()
        backend.close()


@pytest.fixture(scope="module")
def session(browser: Browser, muster: Installation, address: str) -> Any:
    """The cookies of who has logged in."""
    context = browser.new_context(base_url=address)
    page = context.new_page()
    log_in(page)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(browser: Browser, address: str, session: Any) -> Iterator[Page]:
    """A page of who has logged in. What its scripts fail at fails the test."""
    yield from _page(browser, address, viewport=chromium.WIDE, storage_state=session)


@pytest.fixture
def phone(browser: Browser, address: str, session: Any) -> Iterator[Page]:
    options: Any = {"viewport": chromium.PHONE, "has_touch": True, "storage_state": session}
    yield from _page(browser, address, **options)


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.slow)])
def themed(
    request: Any, browser: Browser, address: str, session: Any
) -> Iterator[tuple[Page, Page]]:
    """A wide page and one on a phone, in one theme."""
    made = []
    for viewport in (chromium.WIDE, chromium.PHONE):
        options: Any = {"viewport": viewport, "color_scheme": request.param}
        context = browser.new_context(base_url=address, storage_state=session, **options)
        context.set_default_timeout(LOOK_MS)
        made.append(context.new_page())
    yield made[0], made[1]
    for page in made:
        page.context.close()


def _page(browser: Browser, address: str, **options: Any) -> Generator[Page, None, None]:
    context = browser.new_context(base_url=address, **options)
    context.set_default_timeout(LOOK_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def log_in(page: Page) -> None:
    """Log in at the admin, with the keyboard alone."""
    page.goto("/admin/")
    expect(page.get_by_label("Username")).to_be_focused()
    page.keyboard.type(USER)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**:*/admin/")
