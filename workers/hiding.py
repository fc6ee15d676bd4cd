"""Masking of secrets in what a process of ours writes itself: its log, its output, cut texts.

While an execution is in hand, its secrets are active in the worker's parent and in the process that
runs it, for all that is logged or printed there. What it says itself is masked with its own alone:
with those of others it could find out theirs. What is stored is masked once more, whole, after its
end (`desk.Desk.ended`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from orchestrator.core.masking import Masker, Stream

NOTHING = Masker(())

_active: dict[int, Masker] = {}
"""Maskers of the executions in hand. Without a lock, which a fork might leave locked."""


class _Own(threading.local):
    """Those of the execution that this thread runs."""

    def __init__(self) -> None:
        self.maskers: list[Masker] = []


_own = _Own()


def masker_of(secrets: Collection[str]) -> Masker:
    """Make what masks these values. Takes up to a tenth of a second if there are many."""
    return Masker(secrets) if secrets else NOTHING


def begin(masker: Masker) -> None:
    """Mask its values in this process, until `end`."""
    if masker:
        _active[id(masker)] = masker


def end(masker: Masker) -> None:
    """Forget the values of a masker. May be called again."""
    if _active.pop(id(masker), None):
        for output in _outputs:
            output.finish(masker)


def forget_all() -> None:
    """Forget what a parent had in hand when it forked this process."""
    _active.clear()
    _own.maskers.clear()
    for output in _outputs:
        output.forget()


@contextlib.contextmanager
def of(secrets: Collection[str]) -> Iterator[None]:
    """Mask these values meanwhile, as those of the execution that this thread runs."""
    # a thread of the parent has what that has made, and begun, for all of the attempt
    values = tuple(secrets)
    known = next((each for each in tuple(_active.values()) if each.values == values), None)
    masker = known or masker_of(values)
    if known is None:
        begin(masker)
    _own.maskers.append(masker)
    try:
        yield
    finally:
        _own.maskers.pop()
        if known is None:
            end(masker)


def hidden(text: str) -> str:
    """Mask the secrets of what this thread runs. For a text that is to be cut: half of a value
    could not be found afterwards."""
    return _masked(text, _own.maskers)


def streams() -> list[Stream]:
    """Begin streams that, one after the other, mask the secrets of what this thread runs."""
    return [masker.stream() for masker in _own.maskers if masker]


def _masked(text: str, maskers: Iterable[Masker]) -> str:
    for masker in maskers:
        text = masker.text(text)
    return text


def guard() -> None:
    """Have all that this process logs and prints masked. Children that are forked inherit it.

    What a child process, or a library in C, writes to the same file by itself is not masked.
    """
    for name in ("stdout", "stderr"):
        if not isinstance(getattr(sys, name), _Output):
            setattr(sys, name, _Output(getattr(sys, name)))
    for handler in logging.getLogger().handlers:
        if not isinstance(handler.formatter, _Guarded):
            handler.setFormatter(_Guarded(handler.formatter or logging.Formatter()))


class _Guarded(logging.Formatter):
    """Masks whole lines, so that neither fields nor tracebacks are forgotten."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self.inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return _masked(self.inner.format(record), tuple(_active.values()))


class _Raw(io.BufferedIOBase):
    """Passes on to a text stream what certainly is no part of a secret in hand."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.name = str(getattr(stream, "name", ""))
        self.forget()

    def forget(self) -> None:
        # a new lock: a fork might have left the old one locked
        self._lock = threading.Lock()
        self._streams: dict[int, Stream] = {}

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._stream.fileno())

    def isatty(self) -> bool:
        return bool(self._stream.isatty())

    def write(self, content: Any) -> int:
        written = bytes(content)
        with self._lock:
            for key, masker in tuple(_active.items()):
                self._streams.setdefault(key, masker.stream())
            self._pass_on(written, tuple(self._streams.values()))
        return len(written)

    def finish(self, masker: Masker) -> None:
        """Pass on what was held back for this masker."""
        with self._lock:
            if stream := self._streams.pop(id(masker), None):
                self._pass_on(stream.end(), tuple(self._streams.values()))

    def _pass_on(self, content: bytes, streams: Iterable[Stream]) -> None:
        for stream in streams:
            content = stream.feed(content)
        if content:
            self._stream.write(content.decode("utf-8", "backslashreplace"))
            self._stream.flush()


class _Output(io.TextIOWrapper):
    """Standard output or standard error, masked. Pieces that belong together are put together: they
    are held back while a secret may begin in them."""

    def __init__(self, stream: Any) -> None:
        self.inner = stream
        self._raw = _Raw(stream)
        super().__init__(self._raw, "utf-8", "backslashreplace", write_through=True)
        _outputs.append(self)

    def finish(self, masker: Masker) -> None:
        for finish in (self.flush, lambda: self._raw.finish(masker)):
            with contextlib.suppress(OSError, ValueError):  # closed by an action, or its disk full
                finish()

    def forget(self) -> None:
        self._raw.forget()


_outputs: list[_Output] = []
