"""`manage.py top`: what Now shows, in a terminal, and how it behaves in a real one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import OperationalError

from orchestrator.console import screen, terminal
from orchestrator.console.screen import Reader, split
from orchestrator.console.terminal import Snapshot
from orchestrator.core import clock
from orchestrator.core.models import Worker
from tests import commands
from tests.console.conftest import make_service
from tests.factories import make_worker
from tests.principals import ROOT, given, principal
from tests.waiting import wait_until

ROOT_DIRECTORY = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 90
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

run, document, refused = commands.of("top")


# --- what it shows --------------------------------------------------------------------------------


def test_it_shows_what_now_shows(work: None, worker: Worker) -> None:
    make_service("notifier", silent_seconds=60)
    text = run("--once")
    attention, _, rest = text.partition("Accepted in the last 15 minutes")
    assert "notifier notifier has been silent" in attention
    assert "accepted 7   completed 1   failed 1" in rest
    assert re.search(r"running 2 \(oldest", rest)
    assert "1 of 1 workers up, 2 of 4 slots busy, 50 %" in rest
    assert re.search(r"w1 +■■□□▒ +2 of 4, 1 waiting +active", rest)
    assert re.search(r"default +open +2 +3 ", rest)


def test_nothing_that_needs_attention_is_one_quiet_line(worker: Worker) -> None:
    assert run("--once").startswith("Nothing needs attention.\n")


def test_what_is_worst_comes_first(worker: Worker) -> None:
    make_service("executor", name="second", silent_seconds=60)
    make_worker("stale", now=clock.now() - timedelta(hours=2))
    lines = run("--once").splitlines()
    assert lines[0].startswith("▲ Silent for too long: stale")
    assert lines[1].startswith("● executor second has been silent")


def test_scripts_get_one_document_with_the_same_numbers(work: None, worker: Worker) -> None:
    shown = document()
    assert shown["attention"] == []
    assert {each["name"]: each["count"] for each in shown["recent"]}["failed"] == 1
    assert {each["name"]: each["count"] for each in shown["open"]}["running"] == 2
    assert shown["fleet"] == {"workers": 1, "up": 1, "slots": 4, "running": 2}
    assert shown["workers"][0]["name"] == "w1"
    assert shown["queues"][0]["name"] == "default"


def test_who_may_see_a_part_gets_that_part_alone(work: None) -> None:
    seen = terminal.read(principal(given("executions.read")))
    assert seen.recent
    assert (seen.fleet, seen.sum, seen.lanes) == ((), None, ())
    assert not terminal.read(principal()).recent


def test_lines_fit_the_width_and_need_no_letters_that_a_terminal_lacks(
    work: None, worker: Worker
) -> None:
    seen = terminal.read(ROOT)
    bare: list[str] = []
    for width in (40, 80, 200):
        lines = terminal.lines(seen, width=width, is_coloured=True, is_plain=True)
        bare = [COLOURS.sub("", line) for line in lines]
        assert max(map(len, bare)) <= width
        assert all(line.isascii() for line in bare)
    assert any("##..~" in line for line in bare)


def test_what_is_stored_moves_no_cursor(worker: Worker) -> None:
    Worker.objects.update(cordoned=True, cordon_reason="\x1b[2J\x07new disk")
    lines = terminal.lines(terminal.read(ROOT), width=120, is_coloured=False)
    assert any("new disk" in line for line in lines)
    assert not any("\x1b" in line or "\x07" in line for line in lines)


@pytest.mark.parametrize("every", ["0", "61", "soon"])
def test_a_pause_that_makes_no_sense_is_refused(db: None, every: str) -> None:
    assert "--every" in refused("--every", every)


def test_keys_are_told_apart_however_they_come() -> None:
    assert split(b"\x1b[A\x1b[6~pq") == [b"\x1b[A", b"\x1b[6~", b"p", b"q"]
    assert split(b"\x1bx") == [b"\x1b", b"x"]
    assert split(b"") == []


# --- while the database is away -------------------------------------------------------------------


@pytest.fixture
def away() -> list[bool]:
    return [False]


@pytest.fixture
def reader(away: list[bool]) -> Iterator[Reader[Snapshot]]:
    """A reader whose database may be away."""

    def read() -> Snapshot:
        if away[0]:
            raise OperationalError("connection refused")
        return Snapshot(clock_free, [])

    made: Reader[Snapshot] = Reader(read, every_seconds=0.01)
    yield made
    made.stop()
    made.join()


clock_free = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_database_that_is_away_is_said_and_it_goes_on_when_it_is_back(
    reader: Reader[Snapshot], away: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "close_old_connections", lambda: None)
    shown = screen.Screen(reader, lambda seen, width: ["all is well"], title="Muster")
    reader.start()
    wait_until(lambda: reader.latest)
    assert shown._status(80, 20).startswith(" Muster  live")
    away[0] = True
    wait_until(lambda: reader.lost_since)
    assert "the database does not answer since" in shown._status(80, 20)
    assert reader.latest is not None  # what was seen last stays
    away[0] = False
    wait_until(lambda: reader.lost_since is None)
    assert shown._status(80, 20).startswith(" Muster  live")


def test_a_fault_ends_it_with_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Snapshot:
        raise ZeroDivisionError

    monkeypatch.setattr(screen, "close_old_connections", lambda: None)
    reader: Reader[Snapshot] = Reader(read, every_seconds=0.01)
    reader.start()
    wait_until(lambda: reader.fault)
    with pytest.raises(ZeroDivisionError):
        screen.Screen(reader, lambda seen, width: [], title="")._once()


# --- in a real terminal ---------------------------------------------------------------------------


class Terminal:
    """A pseudo terminal in which a program runs."""

    def __init__(self, program: str, *, columns: int, rows: int) -> None:
        self.ours, theirs = pty.openpty()
        self.text = ""
        self.resize(columns, rows)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT_DIRECTORY,
            env=os.environ | {"TERM": "xterm", "DJANGO_SETTINGS_MODULE": "tests.settings"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def wait_for(self, pattern: str) -> str:
        """Read until this is shown; what was shown until then is dropped."""
        ends_at = time.monotonic() + WAIT_SECONDS
        while not (found := re.search(pattern, self.text, re.DOTALL)):
            assert time.monotonic() < ends_at, self.text[-2000:]
            if select.select([self.ours], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.ours, 65_536).decode(errors="replace")
        self.text = self.text[found.end() :]
        return found[0]

    @property
    def is_as_before(self) -> bool:
        """Whether keys are echoed again, and lines come whole."""
        return bool(termios.tcgetattr(self._theirs)[3] == self.before[3])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self._theirs)


PROGRAM = """
import itertools
from orchestrator.console.screen import Reader, Screen
from django.conf import settings
settings.configure()
numbers = itertools.count()
draw = lambda seen, width: [f"line {n} of width {width}" for n in range(50)] + [f"read {seen}"]
Screen(Reader(lambda: next(numbers), every_seconds=0.05), draw, title="Muster").run()
print("after the end")
"""


@pytest.fixture
def shown() -> Iterator[Terminal]:
    made = Terminal(PROGRAM, columns=80, rows=10)
    yield made
    made.close()


def test_in_a_terminal_it_scrolls_follows_its_size_pauses_and_leaves_all_as_it_was(
    shown: Terminal,
) -> None:
    shown.wait_for(r"\x1b\[\?1049h.*line 0 of width 80.*line 8 of.*Muster  live  0/42")
    shown.press("\x1b[B\x1b[B")
    shown.wait_for(r"\x1b\[Hline 2 of.*2/42")
    shown.press("\x1b[6~")
    shown.wait_for(r"\x1b\[Hline 10 of")
    shown.press("\x1b[A")
    shown.wait_for(r"\x1b\[Hline 9 of")
    shown.press("G")
    shown.wait_for(r"line 49 of.*read \d+.*42/42")
    shown.resize(100, 20)
    shown.wait_for(r"line 49 of width 100.*read \d+.*32/32")
    shown.press("p")
    shown.wait_for(r"paused.*p go on")
    shown.press("g")
    shown.wait_for(r"\x1b\[Hline 0 of width 100.*paused")
    shown.press("p")
    shown.wait_for("live")
    shown.press("q")
    shown.wait_for(r"\x1b\[\?25h\x1b\[\?1049l.*after the end")
    assert shown.process.wait(WAIT_SECONDS) == 0
    assert shown.is_as_before


def test_a_terminal_is_left_as_it_was_if_the_process_is_told_to_end(shown: Terminal) -> None:
    shown.wait_for("line 0 of")
    shown.process.terminate()
    shown.wait_for(r"\x1b\[\?1049l")
    assert shown.process.wait(WAIT_SECONDS) == 128 + 15
    assert shown.is_as_before


def test_a_very_small_terminal_shows_what_fits(shown: Terminal) -> None:
    shown.wait_for("line 0 of")
    shown.resize(12, 3)
    shown.wait_for(r"line 1 of width 12.*Muster")
    shown.press("q")
    assert shown.process.wait(WAIT_SECONDS) == 0
