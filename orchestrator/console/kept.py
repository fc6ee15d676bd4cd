"""The part of pages that is the same for everybody: read once in two seconds, however many look.

Whoever asks while it is being read waits for that answer, but not for long. Values are shared by
threads: nobody may change them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

T = TypeVar("T")

KEPT_SECONDS = 2.0
WAIT_SECONDS = 2.0
"""The longest wait for another's answer: who has waited so long reads for itself."""
ANSWER_SECONDS = 1.0
"""A page that is kept as it was answered holds values that were kept; no window asks more often."""
ANSWERS, LIVES, OPEN_NOW, RECENT = "answers", "lives", "open", "recent"
"""Names of what the pulse lets be read again when it has moved."""
MOST = 1_000
"""Values that are kept; of one that is read while there are more, only its reader hears."""


@dataclass
class _Kept:
    value: Any = None
    until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_kept: dict[str, _Kept] = {}
_guard = threading.Lock()


def for_all(name: str, read: Callable[[], T], *, seconds: float | None = None) -> T:
    """The value that was read for this name last, or what `read` returns if that was too long ago:
    more than so many seconds, or `KEPT_SECONDS`. Raises what `read` raises; then the next who asks
    reads."""
    kept = _of(name)
    if not kept.lock.acquire(timeout=WAIT_SECONDS):
        return read()
    try:
        if time.monotonic() >= kept.until:
            kept.value = read()
            kept.until = time.monotonic() + (KEPT_SECONDS if seconds is None else seconds)
        return cast("T", kept.value)
    finally:
        kept.lock.release()


def forget(name: str) -> None:
    """It changed, and all whose names are below it (`NAME/...`): whoever looks next reads it."""
    with _guard:
        for known in [each for each in _kept if each == name or each.startswith(f"{name}/")]:
            del _kept[known]


def clear() -> None:
    """Forget everything."""
    with _guard:
        _kept.clear()


def _of(name: str) -> _Kept:
    with _guard:
        if name not in _kept and len(_kept) >= MOST:
            now = time.monotonic()
            for old in [old for old, each in _kept.items() if each.until <= now]:
                del _kept[old]
            if len(_kept) >= MOST:
                return _Kept()
        return _kept.setdefault(name, _Kept())
