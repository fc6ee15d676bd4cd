"""A terminal that shows lines, each second again, until somebody presses `q`."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

T = TypeVar("T")
S = TypeVar("S", contravariant=True)

TICK_SECONDS = 0.2
"""A key, a new size and a new reading are noticed within this time."""

ALTERNATE, NORMAL = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""A screen of its own without a cursor, and the one before with everything that was on it."""
HOME, TO_THE_END_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
REVERSE, RESET = "\x1b[7m", "\x1b[0m"

UP, DOWN, PAGE_UP, PAGE_DOWN, TOP, BOTTOM = "up", "down", "page up", "page down", "top", "bottom"
KEYS = {
    b"\x1b[A": UP, b"\x1bOA": UP, b"k": UP,
    b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"j": DOWN,
    b"\x1b[5~": PAGE_UP, b"\x1b[6~": PAGE_DOWN, b" ": PAGE_DOWN,
    b"\x1b[H": TOP, b"\x1b[1~": TOP, b"g": TOP,
    b"\x1b[F": BOTTOM, b"\x1b[4~": BOTTOM, b"G": BOTTOM,
}  # fmt: skip
PAUSE, QUIT = b"p", b"q"


class Draw(Protocol[S]):
    """Makes lines of what was read: of at most this width."""

    def __call__(self, seen: S, *, width: int) -> list[str]: ...


class Reader(threading.Thread, Generic[T]):
    """Reads again and again in a thread: a database that hangs must not hold the keys."""

    def __init__(self, read: Callable[[], T], *, every_seconds: float) -> None:
        super().__init__(name="muster-top", daemon=True)
        self.latest: T | None = None
        self.read_at = 0.0
        """By `time.monotonic`."""
        self.lost_since: float | None = None
        """By `time.time`; None while the database answers."""
        self.fault: Exception | None = None
        self.is_paused = False
        self._read, self._every_seconds = read, every_seconds
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            if not self.is_paused:
                self._once()
            self._stopping.wait(self._every_seconds)

    def stop(self) -> None:
        self._stopping.set()

    def _once(self) -> None:
        close_old_connections()
        try:
            self.latest, self.read_at = self._read(), time.monotonic()
            self.lost_since = None
        except DatabaseError:
            self.lost_since = self.lost_since or time.time()
            connections.close_all()
        except Exception as error:  # noqa: BLE001 - raised again by whoever shows it
            self.fault = error
            self._stopping.set()


class Screen(Generic[T]):
    """Shows what a reader reads, and scrolls it."""

    def __init__(self, reader: Reader[T], draw: Draw[T], *, title: str) -> None:
        self.reader, self.draw, self.title = reader, draw, title
        self.first = 0
        """The line that is at the top."""
        self._shown: tuple[object, ...] = ()
        self._lines: list[str] = []

    def run(self) -> None:
        """Show it until `q` is pressed, or the terminal is gone."""
        self.reader.start()
        try:
            with _own_terminal():
                while self._once():
                    pass
        finally:
            self.reader.stop()

    def _once(self) -> bool:
        """Paint, and take the keys that were pressed; False at the end."""
        if self.reader.fault is not None:
            raise self.reader.fault
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        self._paint(columns, rows)
        if not select.select([sys.stdin], [], [], TICK_SECONDS)[0]:
            return True
        pressed = os.read(sys.stdin.fileno(), 64)
        return bool(pressed) and all(self._take(key, rows) for key in split(pressed))

    def _take(self, key: bytes, rows: int) -> bool:
        if key == QUIT:
            return False
        if key == PAUSE:
            self.reader.is_paused = not self.reader.is_paused
        page = max(1, rows - 2)
        steps = {UP: -1, DOWN: 1, PAGE_UP: -page, PAGE_DOWN: page, TOP: -self.first,
                 BOTTOM: len(self._lines)}  # fmt: skip
        self.first = max(0, self.first + steps.get(KEYS.get(key, ""), 0))
        return True

    def _paint(self, columns: int, rows: int) -> None:
        room = max(1, rows - 1)
        self._make_lines(columns)
        self.first = max(0, min(self.first, len(self._lines) - room))
        visible = self._lines[self.first : self.first + room]
        visible += [""] * (room - len(visible))
        status = self._status(columns, room)
        painted = (*visible, status, columns)
        if painted == self._shown:
            return
        self._shown = painted
        body = "".join(f"{line}{TO_THE_END_OF_LINE}\r\n" for line in visible)
        sys.stdout.write(f"{HOME}{body}{REVERSE}{status}{RESET}{BELOW}")
        sys.stdout.flush()

    def _make_lines(self, columns: int) -> None:
        seen = self.reader.latest
        self._lines = ["Reading ..."] if seen is None else self.draw(seen, width=columns)

    def _status(self, columns: int, room: int) -> str:
        """The last line: the state, and the keys."""
        more = len(self._lines) - room
        place = f"  {self.first}/{more} below the top" if more > 0 else ""
        keys = f"q quit  p {'go on' if self.reader.is_paused else 'pause'}"
        keys += "  arrows, PgUp, PgDn scroll" if more > 0 else ""
        left, right = f" {self.title}  {self._state()}{place}", f"{keys} "
        if len(left) + len(right) >= columns:
            return left[: columns - 1].ljust(columns - 1)
        return left + right.rjust(columns - 1 - len(left))

    def _state(self) -> str:
        if self.reader.lost_since is not None:
            since = time.strftime("%H:%M:%S", time.localtime(self.reader.lost_since))
            return f"the database does not answer since {since}"
        return "paused" if self.reader.is_paused else "live"


def split(pressed: bytes) -> Sequence[bytes]:
    """The keys in what a terminal sent: an arrow is several bytes."""
    keys: list[bytes] = []
    while pressed:
        longest = max(
            (key for key in KEYS if pressed.startswith(key)), key=len, default=pressed[:1]
        )
        keys.append(longest)
        pressed = pressed[len(longest) :]
    return keys


def is_possible() -> bool:
    """True if there is a terminal that can be painted."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


@contextmanager
def _own_terminal() -> Iterator[None]:
    """Get keys at once and unseen, on a screen of its own; all is as before at the end, also if
    the process is told to end."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    handler = signal.signal(signal.SIGTERM, _end)
    try:
        tty.setcbreak(terminal)
        sys.stdout.write(ALTERNATE)
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        with suppress(OSError, termios.error):  # the terminal may be gone
            sys.stdout.write(NORMAL)
            sys.stdout.flush()
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
