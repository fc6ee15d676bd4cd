"""The content of a release: the files of a pack's folder, in an order and a form of their own.

Two folders with the same name and the same files have the same digest, on any host: times, owners
and modes do not count, only which files are programs. Links are refused, as is whatever is neither
a file nor a folder: what a link leads to is not part of the release. Names of archives that lead
outside of it are refused, too.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, cast

import yaml
from django.conf import settings

from orchestrator.core.errors import MusterError
from orchestrator.core.packs.source import BYTE_LIMIT, SourceProblem

LEFT_OUT = frozenset(
    {
        "__pycache__", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache",
        ".ruff_cache",
        ".bin",  # of node_modules: links to what is beside it
    }
)  # fmt: skip
"""Folders that are no part of a release: what others make from it, or beside it."""
LEFT_OUT_ENDINGS = (".pyc", ".pyo")

MOST_FILES = 20_000
LONGEST_NAME, LONGEST_PATH, LONGEST_FOLDER = 200, 400, 100
MIB = 1_048_576
LARGEST_OVERHEAD = 4_096
"""Bytes that a file costs in an archive besides its content, at most."""
LARGEST_HEADERS = 65_536
"""Bytes before the content of one member of a tar archive, at most: tarfile reads them whole."""

UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    OverflowError,
)
"""The exceptions that the readers of archives raise for bytes that are none."""


class NotPackable(MusterError):
    """The files cannot become a release; nothing was installed."""

    def __init__(self, problems: Iterable[SourceProblem]) -> None:
        self.problems = sorted(set(problems), key=lambda each: (each.file, each.message))
        super().__init__("\n".join(map(str, self.problems)))


class Corrupt(MusterError):
    """The content of a release is not what its digest says."""


@dataclass(frozen=True)
class File:
    """A file of a release."""

    path: str
    """Below the pack's folder, with slashes."""
    is_program: bool
    data: bytes

    def line(self) -> bytes:
        """Its part of the digest."""
        return line_of(self.path, self.is_program, self.data)


@dataclass(frozen=True)
class Content:
    """All files of a release, sorted by their paths."""

    folder: str
    """The name of the pack's folder: Python finds its modules by it."""
    files: tuple[File, ...]

    @cached_property
    def digest(self) -> str:
        return digest_of(self.folder, (file.line() for file in self.files))

    @property
    def size(self) -> int:
        return sum(len(file.data) for file in self.files)


def line_of(path: str, is_program: bool, data: bytes) -> bytes:
    """The line that the digest of a release has for one file."""
    kind = "program" if is_program else "file"
    return f"{kind} {hashlib.sha256(data).hexdigest()} {len(data)} {path}\n".encode()


def digest_of(folder: str, lines: Iterable[bytes]) -> str:
    """The SHA-256 of a release: `lines` in the order of their paths."""
    digest = hashlib.sha256(f"muster release 1 {folder}\n".encode())
    for line in lines:
        digest.update(line)
    return digest.hexdigest()


# --- from a folder -------------------------------------------------------------------------------


def read(path: Path | str) -> Content:
    """Read a folder, or an archive of one, from the disk. Raises NotPackable."""
    place = Path(path)
    if place.is_dir():
        return read_folder(place)
    try:
        if not place.is_file():
            raise NotPackable([_problem(str(place), "expected a folder or an archive, found none")])
        with place.open("rb") as file:
            data = file.read(most_bytes() + 1)
    except OSError as error:
        raise NotPackable([_problem(str(place), f"cannot be read: {error.strerror}")]) from None
    return read_archive(data, name=str(place))


def read_folder(folder: Path) -> Content:
    """Read a pack's folder. Raises NotPackable with all its links and other surprises."""
    root = folder.resolve()
    problems: list[SourceProblem] = []
    gathered = _Gathered(str(folder))
    for path in _walk(root, problems):
        name = path.relative_to(root).as_posix()
        try:
            gathered.add(name, *_opened(path, gathered.left()))
        except OSError as error:
            problems.append(_problem(str(path), f"cannot be read: {error.strerror}"))
    return gathered.content(root.name, problems)


def _walk(folder: Path, problems: list[SourceProblem]) -> Iterator[Path]:
    """The files of a folder; notes what is neither a file nor a folder."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if _is_left_out(entry.name):
            continue
        if entry.is_symlink():
            problems.append(_problem(entry.path, "expected a file, found a link: copy its target"))
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), problems)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
        else:
            problems.append(_problem(entry.path, "expected a file, found a device or a pipe"))


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.endswith(LEFT_OUT_ENDINGS)


def _opened(path: Path, most: int) -> tuple[bool, bytes]:
    """A pair: True if a file is a program; and its content, or one byte more than `most`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(0, "it is no file any more")
        return bool(mode & stat.S_IXUSR), file.read(most + 1)


class _Gathered:
    """Files while they are read: within the limits, and each with a path of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, File] = {}
        self.bytes = 0

    def left(self) -> int:
        """The bytes that may still come."""
        return most_bytes() - self.bytes

    def add(self, path: str, is_program: bool, data: bytes) -> None:
        """Raises NotPackable at once if it is too much: the rest is not read."""
        self.bytes += len(data)
        if self.bytes > most_bytes():
            text = f"expected at most {most_bytes() // MIB} MiB of files (MUSTER_PACK_LIMIT_MB)"
            raise NotPackable([_problem(self.name, f"{text}, found more")])
        if len(self.files) >= MOST_FILES:
            text = f"expected at most {MOST_FILES:,} files, found more"
            raise NotPackable([_problem(self.name, text)])
        if why := _fault(path):
            raise NotPackable([_problem(self.name, f"{path!r:.200}: {why}")])
        if path in self.files:
            raise NotPackable([_problem(self.name, f"{path!r}: it is there twice")])
        self.files[path] = File(path, is_program, data)

    def content(self, folder: str, problems: list[SourceProblem]) -> Content:
        """Raises NotPackable."""
        if len(folder) > LONGEST_FOLDER or "/" in folder or _fault(folder):
            problems = [
                *problems,
                _problem(self.name, f"cannot be a folder's name: {folder!r:.120}"),
            ]
        problems = [*problems, *self._files_with_files()]
        if problems:
            raise NotPackable(problems)
        files = (self.files[path] for path in sorted(self.files))
        return Content(folder, tuple(files))

    def _files_with_files(self) -> Iterator[SourceProblem]:
        """Paths that an archive has as a file and as the folder of another."""
        folders = {str(each) for path in self.files for each in PurePosixPath(path).parents}
        for path in sorted(folders & self.files.keys()):
            yield _problem(self.name, f"{path!r}: expected a file or a folder, found both")


def _fault(path: str) -> str:
    """The fault of the path of a file; empty if there is none."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path or ".." in parts or not parts:
        return "expected a path in the pack's folder, found one that leads outside"
    if not path.isprintable():
        return "expected a name that can be printed"
    if len(path) > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in parts):
        return f"expected at most {LONGEST_PATH} characters"
    return ""


def _problem(file: str, message: str) -> SourceProblem:
    return SourceProblem(file, 0, 0, message)


def most_bytes() -> int:
    """The most bytes that the files of a release may have together."""
    return int(settings.MUSTER.pack_limit_mb * MIB)


# --- from an archive -----------------------------------------------------------------------------


def read_archive(data: bytes, *, name: str) -> Content:
    """Read a tar archive, plain or compressed with gzip, or a ZIP archive, of a pack's folder or of
    the files in it. `name` is for problems. Raises NotPackable."""
    if len(data) > most_bytes():
        text = f"expected at most {most_bytes() // MIB} MiB (MUSTER_PACK_LIMIT_MB), found more"
        raise NotPackable([_problem(name, text)])
    gathered = _Gathered(name)
    problems: list[SourceProblem] = []
    try:
        members = _zipped if data.startswith(b"PK\x03\x04") else _tarred
        for path, is_program, content in members(data, gathered, problems):
            gathered.add(path, is_program, content)
    except UNREADABLE as error:
        why = str(error)[:200] or type(error).__name__
        raise NotPackable(
            [_problem(name, f"expected a .tar, .tar.gz or .zip archive, found none: {why}")]
        ) from None
    except (NotImplementedError, RuntimeError) as error:  # zipfile: encrypted, or an odd method
        raise NotPackable([_problem(name, f"cannot be read: {error}")]) from None
    if problems:
        raise NotPackable(problems)
    return _in_folder(gathered)


Members = Iterator[tuple[str, bool, bytes]]


def _tarred(data: bytes, gathered: _Gathered, problems: list[SourceProblem]) -> Members:
    source = _Expanding(data, gathered.name)
    with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|") as archive:
        for count, member in enumerate(archive):
            _stop_if_many(count, gathered.name)
            is_file = member.isreg() and not member.issparse()
            path = _path_of(member.name, gathered.name, problems, is_file or member.isdir())
            skipped = member.size if is_file else 0
            if path and is_file:
                file = archive.extractfile(member)
                source.allow(member.size)
                content = file.read(gathered.left() + 1) if file else b""
                yield path, bool(member.mode & stat.S_IXUSR), content
                skipped -= len(content)
            source.allow(skipped)


def _zipped(data: bytes, gathered: _Gathered, problems: list[SourceProblem]) -> Members:
    # zipfile reads the whole directory at once
    _stop_if_many(data.count(b"PK\x01\x02"), gathered.name)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16
            is_file = stat.S_IFMT(mode) in (0, stat.S_IFREG)
            path = _path_of(member.filename, gathered.name, problems, is_file or member.is_dir())
            if not path or member.is_dir():
                continue
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                text = "expected it stored or deflated, found another compression"
                problems.append(_problem(gathered.name, f"{path!r:.200}: {text}"))
                continue
            with archive.open(member) as file:
                content = file.read(gathered.left() + 1)
            yield path, bool(mode & stat.S_IXUSR), content


def _path_of(name: str, archive: str, problems: list[SourceProblem], is_known: bool) -> str:
    """The path of a member whose content is wanted; empty if it is left out, or has a problem."""
    path = name.removeprefix("./")
    parts = PurePosixPath(path).parts
    if any(map(_is_left_out, parts)):
        return ""
    if not is_known:
        why = "expected a file, found a link or a device"
    else:
        why = _fault(path) if parts else ""
    if why:
        problems.append(_problem(archive, f"{name!r:.200}: {why}"))
    return "" if why else "/".join(parts)


def _stop_if_many(count: int, name: str) -> None:
    if count > 2 * MOST_FILES:
        raise NotPackable([_problem(name, f"expected at most {MOST_FILES:,} files, found more")])


class _Expanding:
    """A tar archive as a stream that is expanded no further than it may be: in all, and before the
    content of a member."""

    def __init__(self, data: bytes, name: str) -> None:
        self._file: IO[bytes] = io.BytesIO(data)
        if data.startswith(b"\x1f\x8b"):
            self._file = cast("IO[bytes]", gzip.GzipFile(fileobj=self._file))
        self._name = name
        self._left = most_bytes() + MOST_FILES * LARGEST_OVERHEAD
        self.allow(0)

    def allow(self, content: int) -> None:
        """Let so many bytes of content be read or skipped, and the headers that follow."""
        self._until_next = max(content, 0) + LARGEST_HEADERS

    def read(self, size: int) -> bytes:
        """Raises NotPackable."""
        data = self._file.read(size)
        self._left -= len(data)
        self._until_next -= len(data)
        if self._left < 0:
            text = f"expected at most {most_bytes() // MIB} MiB of files (MUSTER_PACK_LIMIT_MB)"
            raise NotPackable([_problem(self._name, f"{text}, found more")])
        if self._until_next < 0:
            text = f"expected at most {LARGEST_HEADERS:,} bytes before a file, found more"
            raise NotPackable([_problem(self._name, text)])
        return data


def _in_folder(gathered: _Gathered) -> Content:
    """The files of an archive, without the one folder that may be around all of them."""
    tops = {path.partition("/")[0] for path in gathered.files}
    if "pack.yaml" not in gathered.files and len(tops) == 1:
        (folder,) = tops
        files = [
            File(file.path.removeprefix(f"{folder}/"), file.is_program, file.data)
            for file in gathered.files.values()
        ]
        gathered.files = {file.path: file for file in files}
        return gathered.content(folder, _without_pack(gathered))
    return gathered.content(_name_of(gathered.files), _without_pack(gathered))


def _without_pack(gathered: _Gathered) -> list[SourceProblem]:
    if "pack.yaml" in gathered.files:
        return []
    text = "expected a file pack.yaml in it, or in its only folder; found none"
    return [_problem(gathered.name, text)]


def _name_of(files: dict[str, File]) -> str:
    """The name of the pack, as its file says; `pack` if it says none, which the check reports."""
    file = files.get("pack.yaml")
    if file is None or len(file.data) > BYTE_LIMIT:
        return "pack"
    try:
        values = yaml.safe_load(file.data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        return "pack"
    name = values.get("name") if isinstance(values, dict) else None
    return name if isinstance(name, str) and name and not _fault(name) else "pack"


# --- packed, as it travels -----------------------------------------------------------------------


def pack(content: Content) -> bytes:
    """The content as one compressed archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in content.files:
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(file.data), 0o755 if file.is_program else 0o644
            archive.addfile(member, io.BytesIO(file.data))
    return zlib.compress(packed.getvalue(), 6)


def unpack(packed: bytes, *, folder: str, digest: str, size: int) -> Content:
    """The content of a release from what was stored of it. Raises Corrupt, also if it expands to
    more than the release has."""
    most = size + (MOST_FILES + 1) * LARGEST_OVERHEAD
    try:
        expander = zlib.decompressobj()
        archive = expander.decompress(packed, most)
        if not expander.eof:
            raise Corrupt("it is cut off, or longer than the release")
        gathered = _Gathered(digest)
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            for member in opened:
                file = opened.extractfile(member)
                if not member.isreg() or file is None:
                    raise Corrupt("it has a member that is no file")
                data = file.read()
                gathered.files[member.name] = File(member.name, bool(member.mode & 0o100), data)
    except UNREADABLE as error:
        raise Corrupt(f"it cannot be unpacked: {error}") from None
    files = tuple(gathered.files[path] for path in sorted(gathered.files))
    content = Content(folder, files)
    if content.digest != digest:
        raise Corrupt(f"its digest is {content.digest}, not {digest}")
    return content


def write(
    content: Content, folder: Path, *, file_mode: int = 0o600, folder_mode: int = 0o700
) -> None:
    """Write all files below a new folder; programs get the right to be executed where others may be
    read. The folders get their mode last, so that it may be without the right to write."""
    folder.mkdir(mode=0o700)
    made = {folder}
    for file in content.files:
        path = folder / file.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made.update(each for each in path.parents if each.is_relative_to(folder))
        mode = file_mode | ((file_mode & 0o444) >> 2 if file.is_program else 0)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(file.data)
            os.fchmod(descriptor, mode)
    for each in sorted(made, reverse=True):
        each.chmod(folder_mode)
