"""The ring: the file with the keys under which all others are sealed.

One key a line, 32 random bytes in base64; `#` begins a comment. The first seals, all of them open.
The file is read whenever it is needed and kept nowhere: processes that are forked inherit memory.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection

from orchestrator.core.errors import Unavailable

KEY_BYTES = 32
HEADER = "# Keys of MUSTER_KEYRING. The first line seals, all of them open. Keep a copy.\n"


class RingFault(Unavailable):
    """The ring cannot be used."""

    kind = "key-ring"
    title = "The key ring cannot be used"
    retry_after_seconds = 60


@dataclass(frozen=True, repr=False)
class Ring:
    """The keys of a ring by their ids, the first one first."""

    keys: Mapping[str, bytes]

    @property
    def first(self) -> str:
        """The id of the key that seals."""
        return next(iter(self.keys))

    @classmethod
    def read(cls) -> Ring:
        """Read the file. Raises RingFault."""
        return cls(_read(path()))

    @classmethod
    def to_seal(cls) -> Ring:
        """The same; an embedded installation that has no ring yet gets one."""
        if not settings.MUSTER.keyring and connection.vendor == "sqlite" and not path().exists():
            _make(path())
        return cls.read()


def path() -> Path:
    """The file of the ring, whether it is there or not."""
    named = settings.MUSTER.keyring
    return Path(named) if named else Path(settings.DATA_DIR) / "keyring"


def id_of(key: bytes) -> str:
    """The name of a key of the ring in the rows: the beginning of its digest."""
    return hashlib.sha256(b"muster ring key\0" + key).hexdigest()[:16]


def add() -> str:
    """Put a new key before the others, and make the file if there is none; returns its id.

    Raises RingFault.
    """
    file = path()
    if not file.exists():
        _make(file)
        return Ring.read().first
    _read(file)  # what is wrong with it is said first
    key = secrets.token_bytes(KEY_BYTES)
    # in its place at once: a reader sees the old file or the new one
    with _written(file, _line(key) + file.read_text()) as new:
        os.replace(new, file)
    return id_of(key)


def _make(file: Path) -> None:
    text = HEADER + _line(secrets.token_bytes(KEY_BYTES))
    # whole from the beginning, and only by the first of several processes
    with _written(file, text) as new, contextlib.suppress(FileExistsError):
        os.link(new, file)


@contextlib.contextmanager
def _written(file: Path, text: str) -> Iterator[Path]:
    """Write a file beside this one, for its owner alone. Raises RingFault."""
    new = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        _write(new, text)
        yield new
    except OSError as error:
        raise RingFault(f"The ring {file} cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def _line(key: bytes) -> str:
    return base64.b64encode(key).decode() + "\n"


def _read(file: Path) -> dict[str, bytes]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        if settings.MUSTER.keyring:
            raise RingFault(f"MUSTER_KEYRING={file}: there is no such file") from None
        raise RingFault(
            f"There is no ring: set MUSTER_KEYRING to a file that API and workers can read, and "
            f"make it with `manage.py keys ring --add`. Looked for {file}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RingFault(f"The ring {file} cannot be read: {why}") from None
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if content := line.partition("#")[0].strip():
            key = _decoded(content)
            if len(key) != KEY_BYTES:
                raise RingFault(
                    f"The ring {file}, line {number}: expected {KEY_BYTES} bytes in base64"
                )
            keys[id_of(key)] = key
    if not keys:
        raise RingFault(f"The ring {file} has no key in it: `manage.py keys ring --add` adds one")
    return keys


def _decoded(content: str) -> bytes:
    try:
        return base64.b64decode(content.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        return b""
