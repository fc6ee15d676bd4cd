"""Values and counts that API processes share by Redis, and that need no Redis.

Without `REDIS_URL`, values are computed each time, and each process counts for itself. It is the
same while Redis does not answer: after one failure it is left alone for a few seconds, then one
caller tries again, so that no request waits twice and few wait at all.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import cache as remembered
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.core.cache import caches

T = TypeVar("T")

log = structlog.get_logger(__name__)

SHARED, OF_PROCESS = "default", "process"
"""Names in the setting CACHES."""

PAUSE_SECONDS = 5.0
"""From a failure to the next try."""


class JsonValues:
    """The values that Django stores in Redis: JSON, and not pickles, which would run code of
    whoever can write there. Whole numbers stay as they are, for Redis to add to."""

    def dumps(self, value: Any) -> Any:
        return value if type(value) is int else json.dumps(value).encode()

    def loads(self, stored: bytes) -> Any:
        return json.loads(stored)


class Breaker:
    """Asks Redis while it answers. From any thread."""

    def __init__(self) -> None:
        self.is_away = False
        self._try_at = 0.0
        self._lock = threading.Lock()

    def ask(self, call: Callable[[], T], otherwise: T) -> T:
        """The answer of Redis, or `otherwise` if there is none."""
        if not self._may_ask():
            return otherwise
        try:
            answer = call()
        except _faults() as error:
            self._note_failure(error)
            return otherwise
        if self.is_away:
            self.is_away = False
            log.info("redis answers again")
        return answer

    def _may_ask(self) -> bool:
        """True while it answers; then for one caller after each pause."""
        if not self.is_away:
            return True
        with self._lock:
            if time.monotonic() < self._try_at:
                return False
            self._try_at = time.monotonic() + PAUSE_SECONDS
            return True

    def _note_failure(self, error: Exception) -> None:
        with self._lock:
            is_new, self.is_away = not self.is_away, True
            self._try_at = time.monotonic() + PAUSE_SECONDS
        if is_new:
            log.warning(
                "redis does not answer: values are computed, each process counts for itself",
                error=repr(error),
            )


breaker = Breaker()


@remembered
def _faults() -> tuple[type[Exception], ...]:
    """Errors of Redis, and of a value that somebody else wrote there."""
    from redis.exceptions import RedisError  # a tenth of a second, which embedded ones save

    return (RedisError, OSError, ValueError)


def kept(key: str, compute: Callable[[], T], *, seconds: int) -> T:
    """A value of JSON that was computed at most so many seconds ago, by any process. None is never
    kept."""
    if not settings.REDIS_URL:
        return compute()
    shared, name = caches[SHARED], _name(key)
    value: T | None = breaker.ask(partial(shared.get, name), None)
    if value is None:
        value = compute()
        breaker.ask(partial(shared.set, name, value, seconds), None)
    return value


def count(key: str, *, seconds: int) -> int:
    """Count one more under this key, which is forgotten so many seconds after its first; returns
    the count of all processes, or of this one if there is no Redis."""
    if settings.REDIS_URL:
        counted = breaker.ask(partial(_increment, SHARED, key, seconds), 0)
        if counted:
            return counted
    return _increment(OF_PROCESS, key, seconds)


def _increment(alias: str, key: str, seconds: int) -> int:
    cache, name = caches[alias], _name(key)
    if cache.add(name, 1, seconds):
        return 1
    try:
        return int(cache.incr(name))
    except ValueError:  # it has just been forgotten
        return 1


def _name(key: str) -> str:
    """Of fixed length and characters: a key may hold what a caller sent."""
    return sha256(key.encode("utf-8", "replace")).hexdigest()
