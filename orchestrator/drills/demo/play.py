"""The play of the demo. `Play.script` reads from top to bottom; each `yield` waits for a look.

Nothing here helps the executions: the play requests them, takes workers away, and watches.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db.models import Count

from orchestrator.core import clock, executions
from orchestrator.core.errors import MusterError
from orchestrator.core.executions import NewExecution
from orchestrator.core.management import overview
from orchestrator.core.management.overview import WorkerLine
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.drills.demo import write_probe
from orchestrator.drills.demo.files import Input
from orchestrator.drills.supervisor import EXIT_DECLARED_LOST, NeverStarts, Supervisor

STAYS, KILLED, STOPPED = "w1", "w2", "w3"
WORKERS = (STAYS, KILLED, STOPPED)

ACTOR = "demo"
BATCH_SIZE = 250
PINNED_COUNT = 8
KILL_AT, STOP_AT = 0.2, 0.4
"""The least part of the files that is done when a worker is taken away."""

AT_A_BAD_MOMENT = 0.2
"""The further part to wait for a moment at which it holds more than it can run at once."""

START_LIMIT_SECONDS = 60.0
END_LIMIT_SECONDS = 100.0


class Stuck(MusterError):
    """The play did not go on in time."""


@dataclass(frozen=True)
class Happening:
    """An event to show, and its time: seconds since the workers were up."""

    at_seconds: float
    text: str
    style: str = ""


@dataclass
class Loss:
    """A worker that was taken away. Times by the monotonic clock."""

    how: str
    gone_at: float
    noticed_at: float | None = None

    @property
    def noticed_after_seconds(self) -> float | None:
        return None if self.noticed_at is None else self.noticed_at - self.gone_at


@dataclass
class Asked:
    """The ids of what was accepted."""

    files: dict[UUID, Path] = field(default_factory=dict)
    sleeps: list[UUID] = field(default_factory=list)
    pinned: list[UUID] = field(default_factory=list)

    @property
    def all(self) -> list[UUID]:
        return [*self.files, *self.sleeps, *self.pinned]


class Play:
    """The state of the play, for display, and the script that advances it."""

    def __init__(self, given: Input, supervisor: Supervisor) -> None:
        self.given = given
        self.supervisor = supervisor
        self.asked = Asked()
        self.happenings: list[Happening] = []
        self.losses: dict[str, Loss] = {}
        self.workers: Sequence[WorkerLine] = ()
        self.counts: dict[str, int] = {}
        self.letters = 0
        self.rate_with_all = 0.0
        """Executions a second, until the first worker was taken away."""
        self.seconds = 0.0
        """From the first request to the last end."""
        self.stopped_exit_status: int | None = None
        self._started_at = time.monotonic()
        self._over_at: float | None = None
        self._script = self.script()

    @property
    def elapsed_seconds(self) -> float:
        return (self._over_at or time.monotonic()) - self._started_at

    @property
    def ended(self) -> int:
        return sum(self.counts.get(status, 0) for status in TERMINAL)

    def step(self) -> bool:
        """Look, then continue the script; returns False when it is over. Raises Stuck."""
        self.look()
        if next(self._script, "over") is None:
            return True
        self._over_at = time.monotonic()
        return False

    # --- the script ---

    def script(self) -> Iterator[None]:
        yield from self._until(self._all_are_up, START_LIMIT_SECONDS, "three workers are up")
        self._started_at = asked_at = time.monotonic()
        self._tell(f"{', '.join(WORKERS)} are up")
        self._ask_for_sleeps()
        yield
        yield from self._ask_for_files()

        yield from self._until(lambda: self._is_bad_moment(KILLED, KILL_AT) and self._sleeps_run())
        self.rate_with_all = self.counts[ExecutionStatus.COMPLETED] / (time.monotonic() - asked_at)
        self._kill()
        yield from self._until(lambda: self._is_bad_moment(STOPPED, STOP_AT))
        yield from self._stop()
        self._ask_for_pinned()

        yield from self._until(lambda: len(self.losses) == 2 and not self._is_open())
        self.seconds = time.monotonic() - asked_at
        self._tell("the last execution has ended", "bold green")
        yield from self._resume()

    def _ask_for_sleeps(self) -> None:
        """Request executions that certainly run when their worker is taken away, and may not be
        repeated."""
        self.asked.sleeps = self._request(
            NewExecution(action_ref="core.sleep", parameters={"seconds": 600}, worker_id=_id(name))
            for name in (KILLED, STOPPED)
        )

    def _ask_for_files(self) -> Iterator[None]:
        began_at = time.monotonic()
        paths = self.given.paths
        for start in range(0, len(paths), BATCH_SIZE):
            batch = paths[start : start + BATCH_SIZE]
            ids = self._request(
                NewExecution(action_ref="core.sha256", parameters={"path": str(path)})
                for path in batch
            )
            self.asked.files.update(zip(ids, batch, strict=True))
            yield
        took_seconds = time.monotonic() - began_at
        self._tell(f"{len(paths):,} executions of core.sha256 accepted in {took_seconds:.1f} s")

    def _ask_for_pinned(self) -> None:
        """Request executions that can run nowhere else, and have one attempt: they can only fail,
        and must say why."""
        new = NewExecution(
            action_ref="core.echo", parameters={"for": STOPPED}, worker_id=_id(STOPPED)
        )
        self.asked.pinned = self._request([new] * PINNED_COUNT)
        self._tell(f"{PINNED_COUNT} more accepted that may run on {STOPPED} only, once")

    def _kill(self) -> None:
        held = self._held_by(KILLED)
        self.supervisor.signal_tree(KILLED, signal.SIGKILL)
        self.losses[KILLED] = Loss("kill -9", time.monotonic())
        self._tell(f"kill -9 {KILLED} and its children: it held {held} executions", "bold red")

    def _stop(self) -> Iterator[None]:
        """Stop it, but not in the middle of a write: SQLite has one write lock for all."""
        while True:
            self.supervisor.signal_tree(STOPPED, signal.SIGSTOP)
            if _others_can_write():
                break
            self.supervisor.signal_tree(STOPPED, signal.SIGCONT)
            yield
        self.losses[STOPPED] = Loss("SIGSTOP", time.monotonic())
        self._tell(
            f"SIGSTOP {STOPPED} and its children: it holds {self._held_by(STOPPED)} executions",
            "bold red",
        )

    def _resume(self) -> Iterator[None]:
        """Let the stopped worker continue: it must find out by itself that it was given up."""
        child = self.supervisor.children[STOPPED]
        self.supervisor.signal_tree(STOPPED, signal.SIGCONT)
        self._tell(f"SIGCONT {STOPPED}: it continues where it was stopped")
        yield from self._until(lambda: child.death is not None, 15.0, f"{STOPPED} gives up")
        assert child.death is not None
        self.stopped_exit_status = child.death.exit_status
        if self.stopped_exit_status == EXIT_DECLARED_LOST:
            self._tell(f"{STOPPED} found that it was declared lost, and ended itself (exit 70)")

    # --- looking ---

    def look(self) -> None:
        """Read the present state, and note what changed."""
        for death in self.supervisor.look():
            if death.name in self.losses:
                continue
            self._tell(f"{death.name} died ({death.cause}): {death.last_words}", "red")
            if death.name in (KILLED, STOPPED):
                if death.exit_status != EXIT_DECLARED_LOST:
                    raise NeverStarts(self.supervisor.children[death.name])
                raise Stuck(
                    f"{death.name} was lost before it was taken away ({death.cause}). The demo's "
                    "times are short: run it again when this machine has less else to do"
                )
        self.workers = overview.read_workers(now=clock.now())
        rows = Execution.objects.order_by().values_list("status").annotate(Count("pk"))
        self.counts = dict(rows)
        self._notice_losses()
        self._notice_letters()

    def _notice_losses(self) -> None:
        for line in self.workers:
            loss = self.losses.get(line.name)
            if loss and loss.noticed_at is None and line.status == Worker.Status.INACTIVE:
                loss.noticed_at = time.monotonic()
                self._tell(
                    f"{line.name} is declared lost, {loss.noticed_after_seconds:.1f} s after it "
                    "went: what it ran is settled",
                    "bold yellow",
                )

    def _notice_letters(self) -> None:
        letters = DLQEntry.objects.count()
        if letters > self.letters:
            new = letters - self.letters
            self._tell(f"{new} dead letter{'s' if new > 1 else ''} drained", "yellow")
            self.letters = letters

    def _all_are_up(self) -> bool:
        up = {line.name for line in self.workers if line.status == Worker.Status.ACTIVE}
        return up == set(WORKERS)

    def _is_done(self, part: float) -> bool:
        return self.counts.get(ExecutionStatus.COMPLETED, 0) >= part * len(self.given.paths)

    def _is_bad_moment(self, name: str, part: float) -> bool:
        line = self._line_of(name)
        holds_more = line.held > line.capacity
        return self._is_done(part) and (holds_more or self._is_done(part + AT_A_BAD_MOMENT))

    def _is_open(self) -> bool:
        return self.ended < len(self.asked.all)

    def _sleeps_run(self) -> bool:
        return self.counts.get(ExecutionStatus.RUNNING, 0) > 0 and not (
            Execution.objects.filter(pk__in=self.asked.sleeps)
            .exclude(status=ExecutionStatus.RUNNING)
            .exists()
        )

    def _held_by(self, name: str) -> int:
        return self._line_of(name).held

    def _line_of(self, name: str) -> WorkerLine:
        return next(line for line in self.workers if line.name == name)

    # --- small things ---

    def _until(
        self,
        condition: Callable[[], bool],
        limit_seconds: float = END_LIMIT_SECONDS,
        what: str = "every execution has ended",
    ) -> Iterator[None]:
        until = time.monotonic() + limit_seconds
        while not condition():
            if time.monotonic() > until:
                raise Stuck(f"Waited {limit_seconds:g} s for this, and it did not happen: {what}")
            yield

    def _request(self, news: Iterator[NewExecution] | Sequence[NewExecution]) -> list[UUID]:
        rows = executions.request_many(list(news), requested_by=ACTOR, now=clock.now())
        return [row.pk for row in rows]

    def _tell(self, text: str, style: str = "") -> None:
        self.happenings.append(Happening(self.elapsed_seconds, text, style))


def _id(worker_name: str) -> int:
    return Worker.objects.get(name=worker_name).pk


def _others_can_write() -> bool:
    files = [settings.DATA_DIR / name for name in ("muster.db", "broker.db")]
    probe = [sys.executable, write_probe.__file__, "1.0", *map(str, files)]
    return subprocess.run(probe, check=False, timeout=10).returncode == 0
