"""Releases on this host: fetched from the store, verified, and read-only.

    RELEASES/<digest>/<folder of the pack>/...      complete, as it came here by a rename
    RELEASES/<digest>.lock                          held by whoever fetches it
    RELEASES/.<digest>.<pid>.<number>               on its way: of a process that may have died

The folder that is named after the digest is the one in which Python finds the pack, so that the
modules of two releases have paths, and processes, of their own. Nothing is written below it: what
is there, and what is not, makes up the digest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import structlog
from django.conf import settings

from orchestrator.core import isolation, private_files
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Release
from orchestrator.core.packs import archives, file_locks, store

log = structlog.get_logger(__name__)

LOCK_SECONDS = 60.0
"""Longest wait for another process of this host that fetches the same release."""

Prints = tuple[tuple[str, int, int, int], ...]
"""Of each file and folder: its path, inode, size and time of change, which nobody can set."""

_verified: dict[str, Prints] = {}
"""By digest, what this process has found to be unchanged."""
_numbers = itertools.count(1)
_fetching = threading.Lock()


class CannotFetch(MusterError):
    """The release could not be brought to this host."""


def directory() -> Path:
    """The folder where releases are on this host. Raises CannotFetch if actions could not read them
    there."""
    if stated := settings.MUSTER.releases_dir:
        return Path(stated).resolve()
    if isolation.user() is not None:
        raise CannotFetch(
            "MUSTER_RELEASES_DIR is not set, and the user of actions cannot reach the data "
            "directory."
        )
    return Path(settings.DATA_DIR).resolve() / "releases"


def path_of(release: Release) -> Path:
    """The folder of the pack, if the release is here. Raises CannotFetch."""
    return directory() / release.digest / release.folder


def is_here(release: Release) -> bool:
    """Return True if the release is complete and unchanged on this host: by its digest when this
    process looks first, and later by what the file system says of its files."""
    try:
        folder = path_of(release)
    except CannotFetch:
        return False
    if not folder.is_dir():
        _verified.pop(release.digest, None)
        return False
    prints = _prints(folder)
    if _verified.get(release.digest) == prints:
        return True
    if _digest_on_disk(folder) != release.digest:
        _verified.pop(release.digest, None)
        return False
    _verified[release.digest] = prints
    return True


def ensure(release: Release) -> Path:
    """The folder of the pack as this release has it, fetched unless it is here. Safe to call from
    any number of processes. Raises CannotFetch."""
    folder = path_of(release)
    if is_here(release):
        return folder
    with _fetching, _locked(release.digest):
        if not is_here(release):
            _fetch(release)
    return folder


def _fetch(release: Release) -> None:
    home = directory() / release.digest
    try:
        content = store.read(release)
    except archives.Corrupt as error:
        raise CannotFetch(f"The content of release {release.short} is refused: {error}.") from None
    on_its_way = home.with_name(f".{release.digest}.{os.getpid()}.{next(_numbers)}")
    shared = isolation.user() is not None
    modes = (
        {"file_mode": 0o444, "folder_mode": 0o555}
        if shared
        else {"file_mode": 0o400, "folder_mode": 0o500}
    )
    try:
        on_its_way.mkdir(mode=0o700)
        archives.write(content, on_its_way / release.folder, **modes)
        if home.exists():
            log.warning("a release was changed on disk: it is fetched again", digest=release.digest)
            _remove(home)
        if shared:
            on_its_way.chmod(0o755)
        on_its_way.rename(home)
    except OSError as error:
        raise CannotFetch(f"Release {release.short} cannot be written: {error}.") from None
    finally:
        _remove(on_its_way)
    _verified[release.digest] = _prints(home / release.folder)
    log.info("release fetched", digest=release.digest, files=len(content.files))


@contextlib.contextmanager
def _locked(digest: str) -> Iterator[None]:
    """Hold the lock of a release, which other processes wait for."""
    home = directory()
    with contextlib.ExitStack() as stack:
        try:
            if isolation.user() is None:
                private_files.make_directory(home)
            elif not home.exists():
                home.mkdir(parents=True)
                home.chmod(0o755)
            lock = file_locks.held(home / f"{digest}.lock", until=time.monotonic() + LOCK_SECONDS)
            stack.enter_context(lock)
        except OSError as error:
            raise CannotFetch(f"{home} cannot be written: {error}.") from None
        except file_locks.Taken:
            raise CannotFetch("Another process of this host fetches it.") from None
        yield


def _prints(folder: Path) -> Prints:
    found = []
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                found.append((path, status.st_ino, status.st_size, status.st_ctime_ns))
    return tuple(sorted(found))


def _digest_on_disk(folder: Path) -> str:
    """The digest of what is there, all of it: a file too many is a change as well. Empty if there
    is something that no release has."""
    lines: dict[str, bytes] = {}
    try:
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                path = Path(parent, name)
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode):
                    continue
                if not stat.S_ISREG(mode):
                    return ""
                path_in_it = path.relative_to(folder).as_posix()
                is_program = bool(mode & stat.S_IXUSR)
                lines[path_in_it] = archives.line_of(path_in_it, is_program, path.read_bytes())
    except OSError:
        return ""
    return archives.digest_of(folder.name, (lines[path] for path in sorted(lines)))


def remove_others(kept: Collection[str], *, idle_seconds: float) -> list[str]:
    """Remove releases that are not among these digests and came here, or were kept last, so long
    ago, and what fetches that died have left; returns their names."""
    removed = []
    try:
        home = directory()
        entries = sorted(home.iterdir())
    except (OSError, CannotFetch):
        return []
    for path in entries:
        digest = path.name.strip(".").partition(".")[0]
        if len(digest) != 64 or (digest in kept and not path.name.startswith(".")):
            continue
        if time.time() - path.lstat().st_mtime > idle_seconds:
            _verified.pop(digest, None)
            _remove(path)
            removed.append(path.name)
    return removed


def remove_unneeded(*, idle_seconds: float) -> list[str]:
    """Remove releases whose content the store has removed, as `remove_others` does."""
    stored = Release.objects.filter(content_gone_at__isnull=True)
    return remove_others(set(stored.values_list("digest", flat=True)), idle_seconds=idle_seconds)


def _remove(path: Path) -> None:
    """Remove a folder whose folders may be read-only, or a file."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for parent, folders, _ in os.walk(path):
        for name in (".", *folders):
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(parent, name), 0o700)
    shutil.rmtree(path, ignore_errors=True)


def is_of_release(path: str) -> bool:
    """Return True if a pack's folder is one of a release on this host."""
    try:
        return Path(path).is_relative_to(directory())
    except CannotFetch:
        return False
