"""The console while its database, PostgreSQL here, is away: said at once, and over by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import servers
from tests.browser import chromium
from tests.browser.conftest import LOOK_MS, PASSWORD, USER
from tests.scenarios.installation import PACKS, Backend, Installation

SAID_SECONDS, BACK_SECONDS = 5, 15
"""The promises."""
BUSY_SECONDS = 15
"""What a machine that does much else may add to them."""


class OnPostgres(Backend):
    """A database of PostgreSQL with the embedded broker."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def environment(self, directory: Path) -> dict[str, str]:
        return {"DATABASE_URL": self.url}


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest) -> Iterator[servers.PostgresServer]:
    server = servers.PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def muster(database: servers.PostgresServer, port: int) -> Iterator[Installation]:
    """An API process alone."""
    backend = OnPostgres(database.url)
    installation = Installation(backend)
    try:
        installation.client.call("prepare", pack_paths=PACKS[:1])
        installation.start_api(port)
        installation.client.call("make_administrator", name=USER, password=PASSWORD)
        installation.ready()
        yield installation
    finally:
        installation.close()
        backend.close()


@pytest.fixture
def within() -> Callable[[float], float]:
    """The milliseconds of a promise, on a machine that does much else."""
    return lambda seconds: (seconds + BUSY_SECONDS) * 1000


def test_a_database_that_is_away_is_said_on_a_page_that_comes_back_by_itself(
    page: Page, database: servers.PostgresServer, within: Callable[[float], float]
) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto("/console/fleet?group=host")
    open_page = page.context.new_page()
    open_page.goto("/console/")
    expect(open_page.locator("#pulse")).to_have_text("live")
    database.stop()
    try:
        began = time.monotonic()
        answer = page.goto("/console/fleet?group=host")
        assert answer is not None
        assert answer.status == 503
        assert time.monotonic() - began < SAID_SECONDS + BUSY_SECONDS
        expect(page.get_by_role("heading", name="The database does not answer")).to_be_visible()
        expect(page.get_by_text("Since 20")).to_be_visible()
        assert chromium.faults(page) == []
        refused = [text for text in said if "503" not in text]
        assert refused == []  # nothing of it breaks the policy
        # a page that is open stays, and says it
        state = open_page.locator("#pulse")
        expect(state).to_contain_text("not connected since", timeout=within(BACK_SECONDS))
        expect(open_page.get_by_role("heading", name="Now")).to_be_visible()
    finally:
        database.start()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible(timeout=within(BACK_SECONDS))
    assert page.url.endswith("/console/fleet?group=host")
    expect(open_page.locator("#pulse")).to_have_text("live", timeout=within(BACK_SECONDS))


def test_without_scripts_the_page_tries_again_too(
    browser: Browser, muster: Installation, session: Any, address: str,
    database: servers.PostgresServer, within: Callable[[float], float],
) -> None:  # fmt: skip
    context = browser.new_context(
        base_url=address, storage_state=session, java_script_enabled=False
    )
    page = context.new_page()
    database.stop()
    try:
        page.goto("/console/fleet", timeout=LOOK_MS)
        expect(page.get_by_role("heading", name="The database does not answer")).to_be_visible()
    finally:
        database.start()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible(timeout=within(BACK_SECONDS))
    context.close()
