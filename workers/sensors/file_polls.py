"""The changes that `core.file` finds: files that were created, changed or deleted, or lines that
were added.

The cursor has what was last seen of each file: inode, size and time of change by its path; or for
lines, by device and inode, offset, generation and a digest of its beginning. So a file that is
renamed goes on where it was, and one that was replaced, became shorter, or has got the inode of
another is read from its beginning, as another generation.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from orchestrator.automation.polls import MOST_ITEMS
from orchestrator.automation.sensors.reports import MOST_AT_ONCE, Report
from workers.sensors.lives import Failed

LONGEST_LINE = 65_536
"""Bytes. A longer line is cut into lines of this length."""
READ_BYTES = 1_048_576
MAGIC = frozenset("*?[")
HEAD_BYTES = 1_024
"""By so much of its beginning a file is known again: inodes are used again."""
SETTING = "MUSTER_SENSOR_FILE_ROOTS"

Step = tuple[list[Report], Mapping[str, Any]]
"""Events, and the cursor after them."""


@dataclass(frozen=True)
class Seen:
    """A regular file below the roots."""

    path: str
    """Whatever bytes it has."""
    status: os.stat_result

    @property
    def id(self) -> str:
        return f"{self.status.st_dev}:{self.status.st_ino}"


class FilePoll:
    """The poll of one pattern."""

    def __init__(self, trigger_id: int, parameters: Mapping[str, Any]) -> None:
        self.trigger_id, self.parameters = trigger_id, parameters
        self.every_seconds: float = parameters.get("every_seconds", 5)
        self.wanted = frozenset(parameters.get("changes", ("created", "changed", "deleted")))

    def look(self, cursor: Mapping[str, Any]) -> Iterator[Step]:
        """Look at the files; yields what is new. Raises Failed."""
        present = _present(self.parameters["path"])
        ignores = not cursor and self.parameters.get("existing", "ignore") == "ignore"
        if self.parameters.get("lines"):
            yield from self._lines(present, cursor, ignores=ignores)
        else:
            yield from self._changes(present, cursor, ignores=ignores)

    # --- changes of files

    def _changes(
        self, present: Mapping[str, Seen], cursor: Mapping[str, Any], *, ignores: bool
    ) -> Iterator[Step]:
        seen: dict[str, Any] = dict(cursor.get("files", {}))
        number = int(cursor.get("number", 0))
        found: list[Report] = []
        for path in sorted(seen.keys() | present.keys()):
            before, file = seen.get(path), present.get(path)
            now = _version(file.status) if file else None
            if before == now:
                continue
            # in the key: a file that goes and comes back as it was is created again
            number += 1
            if now is None:
                del seen[path]
            else:
                seen[path] = now
            change = "created" if before is None else "changed" if now else "deleted"
            if change in self.wanted and not ignores:
                found.append(self._change(path, change, file, number))
            if len(found) == MOST_AT_ONCE:
                yield found, {"files": dict(seen), "number": number}
                found = []
        yield found, {"files": seen, "number": number}

    def _change(self, path: str, change: str, file: Seen | None, number: int) -> Report:
        payload: dict[str, Any] = {"path": path, "change": change}
        version = None
        if file is not None:
            version = _version(file.status)
            modified = datetime.fromtimestamp(file.status.st_mtime, UTC)
            payload |= {"size": file.status.st_size, "modified_at": modified.isoformat()}
        key = _key(path, change, version, number)
        return Report(trigger=self.trigger_id, payload=payload, key=key)

    # --- lines of files

    def _lines(
        self, present: Mapping[str, Seen], cursor: Mapping[str, Any], *, ignores: bool
    ) -> Iterator[Step]:
        generation = int(cursor.get("generation", 0))
        files = {file.id: (path, file) for path, file in sorted(present.items(), reverse=True)}
        seen = {id: known for id, known in cursor.get("lines", {}).items() if id in files}
        for id, (path, file) in sorted(files.items(), key=lambda each: each[1][0]):
            opened = _opened(file)
            if opened is None:
                continue
            with opened as content:
                offset, number, head = seen.get(id, (0, 0, ""))
                if not number or file.status.st_size < offset or _head(content, offset) != head:
                    generation += 1
                    offset, number = (file.status.st_size if ignores else 0), generation
                for lines, offset in _batches(content, offset):  # noqa: B020
                    found = [self._line(path, number, start, line) for start, line in lines]
                    seen[id] = [offset, number, _head(content, offset)]
                    yield found, {"lines": dict(seen), "generation": generation}
                seen[id] = [offset, number, _head(content, offset)]
        yield [], {"lines": seen, "generation": generation}

    def _line(self, path: str, generation: int, offset: int, line: bytes) -> Report:
        text = line.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        payload = {"path": path, "change": "line", "line": text.rstrip("\r\n"), "offset": offset}
        key = _key(path, "line", generation, offset)
        return Report(trigger=self.trigger_id, payload=payload, key=key)


def _version(status: os.stat_result) -> list[int]:
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _key(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:40]


# --- which files there are


def roots() -> tuple[Path, ...]:
    """The directories in which polls may look."""
    named = settings.MUSTER.sensor_file_roots.split(",")
    return tuple(Path(each.strip()).resolve() for each in named if each.strip())


def _present(pattern: str) -> dict[str, Seen]:
    """The regular files that match, below the roots, by paths that can be stored. Raises Failed."""
    allowed = roots()
    if not allowed:
        raise Failed(f"{SETTING} names no directory in which polls may look")
    start, rest = _split(pattern)
    if not _is_below(start, allowed) or ".." in rest:
        raise Failed(f"{pattern} is not below {SETTING}")
    found: dict[str, Seen] = {}
    for path in _matching(start, rest, allowed):
        status = _status(path, allowed)
        if status is not None and stat.S_ISREG(status.st_mode):
            found[_stored(path)] = Seen(path, status)
        if len(found) > MOST_ITEMS:
            raise Failed(f"more than {MOST_ITEMS:,} files match {pattern}")
    return found


def _split(pattern: str) -> tuple[str, list[str]]:
    """The part before the first name that may be any of several, and the names from there on."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    # once in a row is enough, and each one more would look at everything again
    names = [name for at, name in enumerate(names) if name != "**" or names[at - 1 : at] != ["**"]]
    fixed = next((at for at, name in enumerate(names) if MAGIC & set(name)), len(names))
    return "/" + "/".join(names[:fixed]), names[fixed:]


def _is_below(path: str, allowed: Sequence[Path]) -> bool:
    """Return True if the path leads to something in one of these directories."""
    try:
        return _is_in(Path(path).resolve(), allowed)
    except (OSError, RuntimeError):  # links in a circle
        return False


def _is_in(path: Path, allowed: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in allowed)


def _matching(start: str, names: Sequence[str], allowed: Sequence[Path]) -> Iterator[str]:
    """The paths that match, as `glob` finds them. But it follows no link that leads outside, and
    with `**` no link at all: they may be somebody else's, and go round in circles."""
    waiting = [(start, tuple(names))]
    while waiting:
        path, rest = waiting.pop()
        if not rest:
            yield path
            continue
        name, after = rest[0], rest[1:]
        if name == "**":
            waiting.append((path, after or ("*",)))
            inner = [each for each in _entries(path, "*") if each.is_dir(follow_symlinks=False)]
            waiting += [(each.path, rest) for each in inner]
            continue
        found = [os.path.join(path, name)]
        if MAGIC & set(name):
            found = [each.path for each in _entries(path, name)]
        waiting += [
            (each, after) for each in found if not os.path.islink(each) or _is_below(each, allowed)
        ]


def _entries(path: str, name: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                is_hidden = entry.name.startswith(".") and not name.startswith(".")
                if not is_hidden and fnmatch.fnmatchcase(entry.name, name):
                    yield entry
    except OSError:
        return  # no directory, gone, or not ours to see


def _status(path: str, allowed: Sequence[Path]) -> os.stat_result | None:
    """The status of what is there; None if it is gone, or if a link leads outside: it may have been
    put there a moment ago, so where it leads is asked of what was opened."""
    try:
        if sys.platform != "linux":
            return os.stat(path) if _is_below(path, allowed) else None
        number = os.open(path, os.O_PATH)
    except OSError:
        return None
    try:
        is_there = _is_in(Path(os.readlink(f"/proc/self/fd/{number}")), allowed)
        return os.fstat(number) if is_there else None
    finally:
        os.close(number)


def _stored(path: str) -> str:
    """The path as a text that can be stored, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# --- what is in a file


def _opened(file: Seen) -> IO[bytes] | None:
    """The content of what was looked at; None if something else is there by now, which the next
    look sees."""

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK)  # it may be a pipe by now

    try:
        content = open(file.path, "rb", opener=opener)  # noqa: SIM115 - the caller closes it
    except OSError:
        return None  # gone, or not ours to read
    if not os.path.samestat(os.fstat(content.fileno()), file.status):
        content.close()
        return None
    return content


def _head(content: IO[bytes], offset: int) -> str:
    """A digest of the beginning of what was read."""
    content.seek(0)
    head = content.read(min(offset, HEAD_BYTES))
    return hashlib.sha256(head).hexdigest()[:16]


def _batches(content: IO[bytes], offset: int) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
    """The whole lines from there on, each with its offset, and the offset after them."""
    lines: list[tuple[int, bytes]] = []
    size = 0
    content.seek(offset)
    while line := content.readline(LONGEST_LINE):
        if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
            break  # its end is still to be written
        lines.append((offset, line))
        offset += len(line)
        size += len(line)
        if len(lines) == MOST_AT_ONCE or size > READ_BYTES:
            yield lines, offset
            lines, size = [], 0
            content.seek(offset)  # whoever takes them has read elsewhere
    if lines:
        yield lines, offset
