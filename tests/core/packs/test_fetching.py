"""A release is fetched whole or not at all, and what was changed is fetched again."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import FileSystemStorage
from django.db import connections

from orchestrator.core import isolation
from orchestrator.core.models import Release, ReleaseChunk
from orchestrator.core.packs import archives, fetching, store, tidying
from orchestrator.core.packs.fetching import CannotFetch
from tests.core.packs.releasing import install, release_of, shop
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Iterator[Path]:
    home = tmp_path / "releases"
    settings.MUSTER = replace(settings.MUSTER, releases_dir=str(home))
    fetching._verified.clear()
    yield home
    for path in (home, *home.rglob("*")):  # pytest removes it
        if path.is_dir():
            path.chmod(0o700)


@pytest.fixture
def release(folder: Any, home: Path) -> Release:
    shop(folder, 1)
    return release_of(install(folder.path))


@pytest.fixture
def shared(tmp_path: Path, settings: Any) -> Path:
    """The folder of a storage of Django's that has the content of releases."""
    settings.STORAGES = settings.STORAGES | {
        "releases": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path / "shared")},
        }
    }
    return tmp_path / "shared" / "releases"


def test_it_is_fetched_verified_and_read_only(release, home, folder):
    assert not fetching.is_here(release)
    place = fetching.ensure(release)
    assert place == home / release.digest / "net"
    assert (place / "work.py").read_bytes() == (folder.path / "work.py").read_bytes()
    assert {oct(path.stat().st_mode & 0o222) for path in (place, *place.rglob("*"))} == {"0o0"}
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []
    assert fetching.is_here(release)
    assert fetching.ensure(release) == place


@pytest.mark.parametrize("change", ["content", "more", "less", "mode", "link"])
def test_what_was_changed_on_disk_is_refused_and_fetched_again(release, change):
    place = fetching.ensure(release)
    file = place / "work.py"
    place.chmod(0o700)
    file.chmod(0o600)
    if change == "content":
        file.write_text(file.read_text().replace("1", "2"))
    elif change == "more":
        (place / "evil.py").write_text("")
    elif change == "mode":
        file.chmod(0o700)
    else:
        file.unlink()
        if change == "link":
            file.symlink_to("/etc/passwd")
    assert not fetching.is_here(release)
    assert fetching.ensure(release) == place
    assert archives.read(place).digest == release.digest


def test_a_process_that_has_seen_nothing_yet_looks_at_every_byte(release):
    place = fetching.ensure(release)
    file = place / "work.py"
    file.chmod(0o600)
    file.write_text(file.read_text().replace("1", "2"))
    file.chmod(0o400)
    fetching._verified.clear()
    assert not fetching.is_here(release)


@pytest.mark.parametrize("fault", ["bit", "short", "gone", "other"])
def test_content_that_was_changed_in_the_store_is_refused(release, home, fault):
    chunk = ReleaseChunk.objects.get(release=release)
    data = bytes(chunk.data)
    if fault == "gone":
        chunk.delete()
    else:
        faults = {"bit": data[:20] + bytes([data[20] ^ 4]) + data[21:], "short": data[:-20]}
        other = replace(archives.read(Path(__file__).parent), folder="net")
        faults["other"] = archives.pack(other)
        chunk.data = faults[fault]
        chunk.save()
    with pytest.raises(CannotFetch, match=f"The content of release {release.short} is refused"):
        fetching.ensure(release)
    assert not (home / release.digest).exists()
    assert not [path for path in home.iterdir() if path.name.startswith(".")]


def test_installing_it_again_repairs_the_store(release, folder):
    ReleaseChunk.objects.all().delete()
    install(folder.path, now=NOW + timedelta(hours=1))
    assert store.is_whole(release)
    release.refresh_from_db()
    assert release.installed_at == NOW + timedelta(hours=1)  # for workers that try again later


def test_a_storage_of_django_may_have_the_content(folder, home, shared):
    shop(folder, 1)
    release = release_of(install(folder.path))
    assert release.kept_in == "storage"
    assert not ReleaseChunk.objects.exists()
    place = fetching.ensure(release)
    assert archives.read(place).digest == release.digest
    file = shared / release.digest
    file.write_bytes(file.read_bytes()[:-9])
    fetching._remove(home / release.digest)
    with pytest.raises(CannotFetch):
        fetching.ensure(release)
    assert store.remove_files(now=NOW) == 0
    store.drop(release, now=NOW)
    assert store.remove_files(now=NOW) == 1
    assert not file.exists()


def test_content_comes_back_though_its_storage_is_gone(folder, home, shared, settings):
    shop(folder, 1)
    old = release_of(install(folder.path))
    del settings.STORAGES["releases"]
    settings.STORAGES = dict(settings.STORAGES)
    with pytest.raises(CannotFetch, match="the storage does not have it"):
        fetching.ensure(old)
    release = release_of(install(folder.path))
    assert release.kept_in == "database"
    assert archives.read(fetching.ensure(release)).digest == release.digest


def test_a_storage_that_is_gone_holds_up_no_tidying(folder, shared, settings):
    shop(folder, 1)
    install(folder.path)
    del settings.STORAGES["releases"]
    settings.STORAGES = dict(settings.STORAGES)
    for version in (2, 3):
        shop(folder, version)
        install(folder.path)
    assert tidying.tidy(now=NOW + timedelta(days=2)) == {"releases": 2}


def test_files_of_installations_that_were_undone_go(folder, shared):
    shop(folder, 1)
    release = release_of(install(folder.path))
    left, foreign = shared / ("0" * 64), shared / "README"
    left.write_bytes(b"left")
    foreign.write_bytes(b"not ours")
    written = datetime.fromtimestamp(left.stat().st_mtime, UTC)
    tidying.tidy(now=written + timedelta(hours=1))  # the installation may still go on
    assert left.exists()
    tidying.tidy(now=written + timedelta(days=2))
    assert sorted(path.name for path in shared.iterdir()) == sorted([release.digest, "README"])


def test_errors_of_a_storage_are_those_of_a_store(folder, home, shared, monkeypatch):
    """A backend may raise what it likes, such as botocore's errors."""
    shop(folder, 1)
    release = release_of(install(folder.path))

    class OfBackend(Exception):
        pass

    def fail(*_: Any, **__: Any) -> None:
        raise OfBackend("no bucket")

    for name in ("_open", "_save", "listdir"):
        monkeypatch.setattr(FileSystemStorage, name, fail)
    with pytest.raises(CannotFetch, match="no bucket"):
        fetching.ensure(release)
    with pytest.raises(store.StorageFailed, match="OfBackend: no bucket"):
        install(folder.path)
    assert tidying.tidy(now=NOW) == {}


def test_a_full_disk_leaves_nothing_and_is_tried_again(release, home, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(os, "fdopen", _full)
        with pytest.raises(CannotFetch, match="No space left"):
            fetching.ensure(release)
    assert [path.name for path in home.iterdir()] == [f"{release.digest}.lock"]
    assert not fetching.is_here(release)
    fetching.ensure(release)
    assert fetching.is_here(release)


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_processes_that_fetch_at_once_get_the_same_folder(release, home):
    places = _in_processes(4, release)
    assert places == [str(home / release.digest / "net")] * 4
    assert fetching.is_here(release)


def test_a_fetch_that_was_killed_leaves_nothing_that_counts(release, home):
    """`kill -9` between the first file and the rename: the next one fetches it whole."""
    started = multiprocessing.get_context("fork").Event()

    def hang(self: Path, target: Path) -> None:
        started.set()
        time.sleep(600)

    def fetch() -> None:
        connections.close_all()
        Path.rename = hang  # type: ignore[method-assign, assignment] # only in this process
        fetching.ensure(release)

    process = multiprocessing.get_context("fork").Process(target=fetch)
    connections.close_all()
    process.start()
    assert started.wait(60)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert [path for path in home.iterdir() if path.name.startswith(f".{release.digest}")]
    assert not fetching.is_here(release)
    fetching.ensure(release)
    assert fetching.is_here(release)
    fetching.remove_others({release.digest}, idle_seconds=-1)
    assert sorted(path.name for path in home.iterdir()) == [
        release.digest, f"{release.digest}.lock",
    ]  # fmt: skip


def test_releases_that_are_not_kept_go_from_the_disk(release, home):
    fetching.ensure(release)
    assert fetching.remove_others(set(), idle_seconds=3_600) == []
    fetching.remove_others(set(), idle_seconds=-1)
    assert list(home.iterdir()) == []


def test_the_user_of_actions_must_be_able_to_reach_them(release, settings, monkeypatch):
    settings.MUSTER = replace(settings.MUSTER, releases_dir="")
    monkeypatch.setattr(isolation, "user", object)
    with pytest.raises(CannotFetch, match="MUSTER_RELEASES_DIR is not set"):
        fetching.ensure(release)


def _in_processes(number: int, release: Release) -> list[str]:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def fetch() -> None:
        connections.close_all()
        answers.put(str(fetching.ensure(release)))

    connections.close_all()
    processes = [context.Process(target=fetch) for _ in range(number)]
    for process in processes:
        process.start()
    places = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    return places
