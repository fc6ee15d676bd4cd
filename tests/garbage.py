"""Nobody looks for garbage: what is in a circle stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(kind: type) -> int:
    """The number of objects of this class."""
    return sum(type(each) is kind for each in gc.get_objects())
