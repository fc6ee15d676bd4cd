"""People who look at the console while everything breaks: they disturb nothing, and always get a
page of ours."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from tests.chaos.facts import Violation
from tests.chaos.storm import Beside

if TYPE_CHECKING:
    from tests.chaos.storm import Storm

NAME, PASSWORD = "onlooker", "a long enough pass phrase"
HOME = "/console/"
RULE = "pages_are_answered"
WINDOWS = 3
"""Pages that are open at once."""
LOOK_SECONDS = 2.0
"""The longest look at one page."""
PAUSE_SECONDS = 0.5
"""After an API process did not answer: it is broken, too."""
ANSWERS = (200, 404, 503)
"""Of pages: a row may be gone, and a database that is away is said."""

LINK = re.compile(r'href="(/console/[^"?#]*)"')
TOPICS = re.compile(r'id="live" data-topics="([^"]*)"')
CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


def shape(path: str) -> tuple[str, ...]:
    """What is the same for all pages of a kind: `/console/executions/ID` is one of many."""
    kind, *names = path.removeprefix(HOME).split("/")
    return (kind, *("*" for _ in names))


class Onlookers(Beside):
    """Open the pages of the console in turn, one of each kind, follow the stream of each, and ask
    again when something moved, until the load ends."""

    def __init__(self, storm: Storm, *, windows: int = WINDOWS) -> None:
        super().__init__(name="onlookers", daemon=True)
        self._storm, self._windows = storm, windows
        self._lock = threading.Lock()
        self._pages = {shape(HOME): HOME}
        self._opened = Counter[str]()
        self.seen = Counter[tuple[str, ...]]()
        """Good answers of each kind of page."""
        self._wrong: list[Violation] = []
        storm.muster.client.call("make_administrator", name=NAME, password=PASSWORD)

    def run(self) -> None:
        try:
            with ThreadPoolExecutor(self._windows) as windows:
                for each in [windows.submit(self._window) for _ in range(self._windows)]:
                    each.result()
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for this thread
            self.failure = error

    def violations(self) -> list[Violation]:
        """Answers that were none of ours, and kinds of pages that nobody got to see."""
        never = self._pages.keys() - self.seen.keys()
        return [
            *self._wrong,
            *(Violation(RULE, f"{self._pages[each]} never came") for each in never),
        ]

    @property
    def _is_over(self) -> bool:
        return self._storm.client.enough.is_set()

    def _window(self) -> None:
        is_known = False
        # a window logs in once: its session is in the database
        with httpx.Client(base_url=self._storm.keeper.url, timeout=15.0) as http:
            while not self._is_over:
                try:
                    is_known = is_known or _log_in(http)
                    if is_known:
                        self._look(http, self._next())
                except httpx.TransportError:
                    time.sleep(PAUSE_SECONDS)

    def _next(self) -> str:
        """The page that was opened least."""
        with self._lock:
            page = min(self._pages.values(), key=lambda each: self._opened[each])
            self._opened[page] += 1
            return page

    def _look(self, http: httpx.Client, page: str) -> None:
        topics = TOPICS.search(self._get(http, page))
        if topics is not None and _has_moved(http, topics[1]):
            self._get(http, page, **{"X-Live": "1"})

    def _get(self, http: httpx.Client, page: str, **headers: str) -> str:
        answer = http.get(page, headers=headers)
        with self._lock:
            if answer.status_code not in ANSWERS:
                told = f"{page}: {answer.status_code} {answer.text[:200]}"
                self._wrong.append(Violation(RULE, told))
            if answer.status_code != 200:
                return ""
            self.seen[shape(page)] += 1
            for link in LINK.findall(answer.text):
                self._pages.setdefault(shape(link), link)
        return answer.text


def _log_in(http: httpx.Client) -> bool:
    """Whether it worked: the database may be away."""
    form = http.get("/admin/login/")
    token = CSRF.search(form.text)
    if token is None:
        time.sleep(PAUSE_SECONDS)
        return False
    said: dict[str, Any] = {"username": NAME, "password": PASSWORD, "next": HOME}
    answer = http.post("/admin/login/", data={"csrfmiddlewaretoken": token[1], **said})
    return answer.status_code == 302


def _has_moved(http: httpx.Client, topics: str) -> bool:
    """Follow the stream of a page until something moves, or for `LOOK_SECONDS`."""
    ends_at = time.monotonic() + LOOK_SECONDS
    try:
        with http.stream(
            "GET", f"/console/live?topics={quote(topics)}", timeout=LOOK_SECONDS
        ) as told:
            for line in told.iter_lines():
                if line.startswith("event: moved"):
                    return True
                if time.monotonic() > ends_at:
                    return False
    except httpx.ReadTimeout:
        pass
    return False
