"""The store of the content of releases: in the database, in chunks, or in a storage of Django's.

Only content that has the digest of its release enters, or is given out. A file of the storage is
written before the row that needs it is committed, and removed after the row says that it is gone:
what goes wrong in between leaves a file too many, which `remove_files` finds, and none too few.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.core.files.storage import Storage, storages
from django.db import Error as DatabaseError
from django.db import models, transaction

from orchestrator.core.errors import Unavailable
from orchestrator.core.models import Release, ReleaseChunk
from orchestrator.core.packs import archives
from orchestrator.core.packs.archives import Content, Corrupt

DATABASE, STORAGE = "database", "storage"
ALIAS = "releases"
"""In Django's STORAGES."""
FOLDER = "releases"
"""In the storage."""
CHUNK_BYTES = 524_288
LEFT = timedelta(days=1)
"""A file that no release has is of an installation under way, or after this time of one that was
undone."""


class StorageFailed(Unavailable):
    """The storage of the content of releases did not answer."""

    kind = "storage-unavailable"
    title = "Storage unavailable"


def keep(release: Release, content: Content) -> None:
    """Store the content of a release where new content goes now; called in the transaction that
    installs it. Raises StorageFailed."""
    packed = archives.pack(content)
    release.chunks.all().delete()
    release.kept_in = chosen()
    release.save(update_fields=["kept_in"])
    if release.kept_in == STORAGE:
        with _asking() as storage:
            if storage.exists(_name(release)):  # it is not whole, or nobody has it any more
                storage.delete(_name(release))
            storage.save(_name(release), io.BytesIO(packed))
        return
    ReleaseChunk.objects.bulk_create(
        [
            ReleaseChunk(release=release, number=number, data=packed[start : start + CHUNK_BYTES])
            for number, start in enumerate(range(0, len(packed), CHUNK_BYTES))
        ],
        batch_size=8,
    )


def read(release: Release) -> Content:
    """The content of a release. Raises Corrupt if it is not there, or not what it was."""
    if release.kept_in == STORAGE:
        packed = _read_file(release)
    else:
        rows = ReleaseChunk.objects.filter(release=release).order_by("number")
        packed = b"".join(bytes(data) for data in rows.values_list("data", flat=True))
    if not packed:
        raise Corrupt("the store has nothing of it")
    return archives.unpack(packed, folder=release.folder, digest=release.digest, size=release.size)


def is_whole(release: Release) -> bool:
    """Return True if the store has the content of the release, unchanged."""
    try:
        read(release)
    except Corrupt:
        return False
    return True


def drop(release: Release, *, now: datetime) -> None:
    """Remove the content of a release, which stays known by its row; its file, if it has one, goes
    with `remove_files`."""
    release.content_gone_at = now
    release.save(update_fields=["content_gone_at"])
    release.chunks.all().delete()


def remove_files(*, now: datetime) -> int:
    """Remove the files that no release needs; returns how many. Raises StorageFailed."""
    if chosen() != STORAGE:
        return 0
    with _asking() as storage:
        names = storage.listdir(FOLDER)[1] if storage.exists(FOLDER) else []
    needed = set(_with_files().values_list("digest", flat=True))
    ours = [name for name in names if re.match("[0-9a-f]{64}", name) and name not in needed]
    return sum(_remove_file(name, now) for name in ours)


@transaction.atomic
def _remove_file(name: str, now: datetime) -> bool:
    # whoever installs the release again has its row until its content is there
    is_known = Release.objects.select_for_update().filter(digest=name).exists()
    if _with_files().filter(digest=name).exists():
        return False
    with _asking() as storage:
        if not is_known and storage.get_modified_time(f"{FOLDER}/{name}") > now - LEFT:
            return False
        storage.delete(f"{FOLDER}/{name}")
    return True


def _with_files() -> models.QuerySet[Release]:
    return Release.objects.filter(kept_in=STORAGE, content_gone_at__isnull=True)


def chosen() -> str:
    """The place where the content of new releases goes."""
    return STORAGE if ALIAS in storages.backends else DATABASE


@contextlib.contextmanager
def _asking() -> Iterator[Storage]:
    """Give the storage. Raises StorageFailed for whatever goes wrong with it: each kind of storage
    has errors of its own."""
    try:
        yield storages[ALIAS]
    except DatabaseError:
        raise
    except Exception as error:
        text = f"The storage of releases did not answer: {type(error).__name__}: {error}"[:500]
        raise StorageFailed(text) from error


def _name(release: Release) -> str:
    return f"{FOLDER}/{release.digest}"


def _read_file(release: Release) -> bytes:
    most = release.size + (archives.MOST_FILES + 1) * archives.LARGEST_OVERHEAD
    try:
        with _asking() as storage, storage.open(_name(release)) as file:
            packed: bytes = file.read(most)
    except StorageFailed as error:
        raise Corrupt(f"the storage does not have it: {error.__cause__}") from None
    return packed
