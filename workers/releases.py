"""Releases on this worker's host: brought here before an execution needs them.

The keeper asks every two seconds which releases are installed, fetches those that it does not have,
and makes the Python environments of packs that need one. An attempt whose release is not here yet
waits for a few seconds; then it goes elsewhere, uncounted, and the worker's row says what it lacks
until it is here. Another thread watches over those that wait: a fetch may take minutes.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import close_old_connections, connections

from orchestrator.core import isolation, outages
from orchestrator.core.models import Execution, Release
from orchestrator.core.models.catalog import WITHOUT_CODE
from orchestrator.core.packs import environments, fetching
from orchestrator.core.packs.runtimes import REQUIREMENTS
from orchestrator.core.reasons import Reason
from workers.runtimes import unavailable_result

if TYPE_CHECKING:
    from workers.attempts import Attempt
    from workers.host import Host

T = TypeVar("T")

log = outages.get_logger(__name__)

LOOK_SECONDS = 2.0
"""Between two looks at what is installed."""
LONGEST_PAUSE_SECONDS = 60.0
"""Between two attempts to fetch a release: first as long as between two looks, then doubled."""
VERIFY_SECONDS = 15.0
"""Between two looks at the files of releases that are here: are they what they were?"""
TIDY_SECONDS = 600.0
IDLE_SECONDS = 3_600.0
"""The time after which this host removes what no release has any more."""
WAIT_SECONDS = 5.0
"""Longest wait of a claimed attempt for its release."""
MAKING_SECONDS = 900.0
"""To make a Python environment ahead, on a host that has to download its packages."""
ENVIRONMENTS_AT_ONCE = 2


@dataclass(frozen=True)
class Failure:
    """A release that could not be fetched: it is tried again, ever more rarely. Each attempt reads
    all of its content."""

    why: str
    installed_at: datetime
    """An installation may have mended it."""
    pause_seconds: float
    try_at: float

    def is_over(self, release: Release) -> bool:
        return time.monotonic() >= self.try_at or release.installed_at != self.installed_at


class Releases(threading.Thread):
    """Keeps the releases of this host."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-releases", daemon=True)
        self.agent = agent
        self.asked: queue.Queue[Attempt] = queue.Queue()
        self._wanted: queue.Queue[int] = queue.Queue()
        """The ids of their releases."""
        self._here: dict[int, str] = {}
        """The folders of releases that can be run, by their ids. Replaced entry by entry: the
        consumer's thread reads it."""
        self._waiting: list[Attempt] = []
        self._failures: dict[int, Failure] = {}
        self._lacked: set[int] = set()
        """Releases for which an attempt was given back: they are fetched as soon as possible."""
        self._environments: dict[int, Making] = {}
        self._look_at = self._verify_at = self._tidy_at = 0.0
        self._keeper = threading.Thread(
            target=self._keep, name="muster-releases-keeper", daemon=True
        )

    def start(self) -> None:
        self._keeper.start()
        super().start()

    # --- on the consumer's thread

    def path_for(self, execution: Execution) -> str | None:
        """The folder of the pack of an execution as its release has it; None if it is not here.
        Without a release: the path at which the pack was installed."""
        if execution.release_id is None:
            return str(execution.action.pack.path)
        if execution.action.runtime in WITHOUT_CODE:
            return ""
        return self._here.get(execution.release_id)

    def bring(self, attempt: Attempt) -> None:
        """Fetch the release of a claimed attempt, and offer the attempt to the desk again."""
        attempt.release_wanted_at = attempt.release_wanted_at or time.monotonic()
        self.asked.put(attempt)
        self._wanted.put(attempt.execution.release_id or 0)

    def lacks(self, release_id: int) -> bool:
        """Return True if executions with this release were given back, and could not run here now
        either. From any thread."""
        return release_id in self._lacked and release_id not in self._here

    # --- on its own, which waits for no fetch and no database

    def run(self) -> None:
        while not self.agent.is_stopping:
            try:
                self._take()
                self._settle()
            except Exception:  # of any kind: this thread must live
                log.exception("cannot look after attempts that wait for releases, trying again")
                self.agent.stops.wait(1.0)
        for attempt in [*self._waiting, *_came(self.asked)]:
            self._give_up(attempt)

    def _take(self) -> None:
        """Wait for an attempt, or for the next look at those that have come."""
        seconds = 0.1 if self._waiting else LOOK_SECONDS
        with contextlib.suppress(queue.Empty):
            self._waiting += [self.asked.get(timeout=seconds), *_came(self.asked)]

    def _settle(self) -> None:
        """Let attempts go on whose release is here, and give back those that waited for long."""
        for release_id, making in list(self._environments.items()):
            if not making.is_alive():
                # if it failed, the attempt tries once more, and says why
                self._here[release_id] = str(making.folder)
                del self._environments[release_id]
        now, left = time.monotonic(), []
        ready: list[Attempt] = []
        for attempt in self._waiting:
            if attempt.execution.release_id in self._here or attempt.is_canceling:
                ready.append(attempt)
            elif now - attempt.release_wanted_at > WAIT_SECONDS or self.agent.is_stopping:
                self._give_up(attempt)
            else:
                left.append(attempt)
        self._waiting = left
        if ready:
            self.agent.loop.call_soon(lambda: self.agent.desk.go_on(ready))

    def _give_up(self, attempt: Attempt) -> None:
        """End an attempt that has not begun: it goes to a worker that has the release."""
        release_id = attempt.execution.release_id or 0
        self._lacked.add(release_id)
        why = "Its release is being fetched."
        if failure := self._failures.get(release_id):
            why = failure.why
        elif release_id in self._environments:
            why = "Its Python environment is being made."
        result = unavailable_result(attempt.execution, why)
        self.agent.desk.ended(attempt, Reason.PACK_UNAVAILABLE, result)

    # --- on the keeper

    def _keep(self) -> None:
        while not self.agent.is_stopping:
            try:
                self._fetch_wanted()
                self._look()
                self._verify()
                self._tidy()
                close_old_connections()
            except Exception:  # of any kind: without this thread nothing new could run
                log.exception("cannot keep releases, trying again")
                connections.close_all()
                self.agent.stops.wait(1.0)
        connections.close_all()

    def _fetch_wanted(self) -> None:
        """Wait for an attempt that lacks its release, or for the next look; fetch what is
        wanted."""
        try:
            wanted = {self._wanted.get(timeout=LOOK_SECONDS), *_came(self._wanted)}
        except queue.Empty:
            return
        for release in Release.objects.filter(pk__in=wanted):
            self._fetch(release)

    def _look(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        wanted = _releases_of(self._waiting) | self._lacked
        current = set(Release.objects.current().values_list("pk", flat=True))
        for release in Release.objects.filter(pk__in=(wanted | current) - self._here.keys()):
            if release.content_gone_at is None:
                self._fetch(release)
            else:
                self._lacked.discard(release.pk)
        self._lacked.difference_update(self._here)  # in place: another thread adds to it

    def _fetch(self, release: Release) -> None:
        """Bring a release here, and let it be run when its environment is made."""
        failure = self._failures.get(release.pk)
        if release.pk in self._environments or (failure and not failure.is_over(release)):
            return
        try:
            folder = fetching.ensure(release)
        except fetching.CannotFetch as error:
            self._note_failure(release, str(error))
            return
        self._failures.pop(release.pk, None)
        if (folder / REQUIREMENTS).is_file() and release.pk not in self._here:
            making = Making(release, folder)
            making.start()
            self._environments[release.pk] = making  # once it is alive: the other thread looks
        else:
            self._here[release.pk] = str(folder)

    def _note_failure(self, release: Release, why: str) -> None:
        before = self._failures.get(release.pk)
        if before is None or before.why != why:
            log.warning("release not fetched", digest=release.digest, why=why)
        pause = LOOK_SECONDS
        if before is not None and before.installed_at == release.installed_at:
            pause = min(2 * before.pause_seconds, LONGEST_PAUSE_SECONDS)
        self._failures[release.pk] = Failure(
            why, release.installed_at, pause, time.monotonic() + pause
        )

    def _verify(self) -> None:
        """Look if somebody has changed what is here: that is fetched again before it is run."""
        if time.monotonic() < self._verify_at:
            return
        self._verify_at = time.monotonic() + VERIFY_SECONDS
        for release in Release.objects.filter(pk__in=list(self._here)):
            if not fetching.is_here(release):
                self._here.pop(release.pk, None)
                self._fetch(release)

    def _tidy(self) -> None:
        if time.monotonic() < self._tidy_at:
            return
        self._tidy_at = time.monotonic() + TIDY_SECONDS
        stored = Release.objects.filter(content_gone_at__isnull=True)
        for release_id in self._here.keys() - set(stored.values_list("pk", flat=True)):
            self._here.pop(release_id, None)
        if removed := fetching.remove_unneeded(idle_seconds=IDLE_SECONDS):
            log.info("old releases removed", n=len(removed))


class Making(threading.Thread):
    """Makes the environments of a release's actions ahead of the first execution."""

    few = threading.Semaphore(ENVIRONMENTS_AT_ONCE)

    def __init__(self, release: Release, folder: Path) -> None:
        super().__init__(name="muster-environments", daemon=True)
        self.release, self.folder = release, folder

    def run(self) -> None:
        with self.few:
            _make_environments(self.release, self.folder)


def _make_environments(release: Release, folder: Path) -> None:
    try:
        rows = list(release.actions.values_list("definition", flat=True))
    finally:
        connections.close_all()
    for interpreter in {_interpreter(row) for row in rows if row["runtime"] == "python"}:
        try:
            environments.python_of(
                folder,
                interpreter=interpreter,
                directory=environments.directory(isolation.user()),
                timeout_seconds=MAKING_SECONDS,
                user=isolation.user(),
            )
        except environments.CannotMake as error:
            log.warning("environment not made", digest=release.digest, why=str(error))


def _interpreter(definition: dict[str, Any]) -> str:
    return str(definition["runtime_options"].get("interpreter", ""))


def _came(source: queue.Queue[T]) -> list[T]:
    """All that has come since."""
    return [source.get_nowait() for _ in range(source.qsize())]


def _releases_of(attempts: Iterable[Attempt]) -> set[int]:
    """The releases that these attempts run."""
    ids = (attempt.execution.release_id for attempt in attempts)
    return {id for id in ids if id is not None}
