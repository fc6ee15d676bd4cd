"""`make screenshots`: the pictures of the console in docs/images, light and dark.

Of an installation made for them, with something to see: work, failures, a cordon, a lane of work
that is paused, an executor that is frozen.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, expect

from tests import servers
from tests.browser import chromium
from tests.scenarios.installation import REPOSITORY, Backend, Installation

USER, PASSWORD = "ada", "a long enough pass phrase"
SIZE = {"width": 1200, "height": 675}
MESSAGE = "no route to printer 7"
ORDER = {
    "order": "4711",
    "card": "declined",
    "items": [{"sku": "tea", "price": 4, "count": 2}, {"sku": "cup", "price": 9, "count": 1}],
}
WAIT_MS = 60_000


class Picture(NamedTuple):
    """A page that is taken in each theme."""

    file: str
    """The beginning of its name; `-light.png` or `-dark.png` follows."""
    path: str
    """`{failed}` is the id of an execution that failed, `{task}` that of a task that needs help."""


PICTURES = (
    Picture("console", "/console/"),
    Picture("console-execution", "/console/executions/{failed}"),
    Picture("console-fleet", "/console/fleet"),
    Picture("console-queues", "/console/queues"),
    Picture("console-task", "/console/tasks/{task}"),
    Picture("console-triage", "/console/triage"),
)
"""A new page needs a line here, and something to see of it in `give_work`."""


@contextmanager
def an_installation() -> Iterator[tuple[Installation, str]]:
    """With three workers and an executor that is about to be missed; and its address."""
    backend = Backend()
    muster = Installation(backend, staleness_multiplier=50)
    try:
        port = servers.free_port()
        muster.start_executor()
        muster.command("queue", "create", "bills", "--max-running", "5")
        muster.command("queue", "create", "mail", "--description", "Mails that go out.")
        for name in ("w1", "w2", "w3"):
            queues = "default,bills=2" if name == "w1" else ""
            muster.start_worker(name, concurrency=4, queues=queues)
        muster.start_beat()
        muster.start_api(port)
        muster.client.call("make_administrator", name=USER, password=PASSWORD)
        muster.ready()
        yield muster, f"http://127.0.0.1:{port}"
    finally:
        muster.close()
        backend.close()


def give_work(muster: Installation) -> dict[str, object]:
    """Have something to see; the ids that paths name."""
    failed = muster.submit_many([{"parameters": {"message": MESSAGE}}] * 13, "core.fail")
    done = muster.submit_many([{"parameters": {"message": "hello"}}] * 180, "core.echo")
    muster.wait_for_ends([*failed, *done])
    muster.command("dlq", "open", "--execution", str(failed[0]), "--detail", MESSAGE)
    muster.command("pack", "install", str(REPOSITORY / "packs" / "examples"))
    task = muster.client.call("request_task", name="order_fulfilment", context=ORDER, key="1")
    muster.wait_for(
        lambda: muster.client.call("task", id=task).state == "blocked_by_failures", "it goes on"
    )
    muster.command("workers", "cordon", "w3", "--reason", "new disk")
    muster.command("queue", "pause", "mail", "--reason", "the mail server moves")
    waiting = {"parameters": {"message": "hello"}, "queue": "mail"}
    muster.submit_many([waiting] * 4, "core.echo")
    muster.submit_many([{"parameters": {"seconds": 900}}] * 7, "core.sleep")
    muster.submit_many([{"parameters": {"seconds": 900}, "queue": "bills"}] * 3, "core.sleep")
    return {"failed": failed[0], "task": task}


@contextmanager
def frozen_executor(muster: Installation) -> Iterator[None]:
    """Freeze the executor at a moment at which it holds no lock of the database: whatever writes,
    such as a login, would wait for it."""
    executor = muster.service("executor")
    executor.pause_tree()
    while _is_locked(muster.directory / "muster.db"):
        executor.resume_tree()
        executor.pause_tree()
    try:
        yield
    finally:
        executor.resume_tree()


def _is_locked(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0.5)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


def take(page: Page, pictures: Iterator[tuple[str, str]], folder: Path) -> None:
    """Take pages, each in each theme."""
    for name, path in pictures:
        page.goto(path)
        expect(page.get_by_text("No executor is alive").first).to_be_visible(timeout=WAIT_MS)
        for theme in chromium.THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            expect(page.locator("#pulse")).to_have_text("live", timeout=WAIT_MS)
            file = folder / f"{name}-{theme}.png"
            page.screenshot(path=file)
            sys.stdout.write(f"{file}\n")


@contextmanager
def logged_in(browser: Browser, address: str) -> Iterator[Page]:
    """A page of who has logged in."""
    # without motion: a picture must not catch a colour on its way to another
    options: Any = {"viewport": SIZE, "reduced_motion": "reduce"}
    context = browser.new_context(base_url=address, **options)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto("/console/")
    page.get_by_label("Username").fill(USER)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Now")).to_be_visible(timeout=WAIT_MS)
    yield page
    context.close()


def main() -> None:
    folder = REPOSITORY / "docs" / "images"
    with an_installation() as (muster, address), chromium.started() as browser:
        ids = give_work(muster)
        with logged_in(browser, address) as page, frozen_executor(muster):
            paths = ((each.file, each.path.format(**ids)) for each in PICTURES)
            take(page, paths, folder)


if __name__ == "__main__":
    main()
