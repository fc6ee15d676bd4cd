"""The queues that a worker serves, as its command names them: `orders=4,orders:retry=1,default`."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core import queue_terms, spelling
from orchestrator.core.errors import MusterError
from orchestrator.core.queue_terms import DEFAULT, queue_of

MOST_SLOTS = 2**31 - 1


class InvalidSubscription(MusterError):
    """A worker cannot serve these queues."""


def parse(text: str) -> dict[str, int | None]:
    """Read subscriptions: names with the most slots for each, or None for all slots of the worker.
    Raises InvalidSubscription."""
    subscriptions: dict[str, int | None] = {}
    for part in text.split(","):
        name, equals, slots = part.strip().partition("=")
        if not name:
            raise InvalidSubscription(f"expected names such as orders=4,default, found {text!r}")
        if name in subscriptions:
            raise InvalidSubscription(f"{name} is there twice: {text!r}")
        if name.startswith(f"{DEFAULT}:"):
            raise InvalidSubscription(f"the queue {DEFAULT} has no retry lane, found {name!r}")
        subscriptions[name] = _slots(slots, name) if equals else None
    return subscriptions


def _slots(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:11]) <= MOST_SLOTS:
        raise InvalidSubscription(f"{name}: expected a number of slots above 0, found {text!r}")
    return int(text)


def require_known(subscriptions: Mapping[str, int | None]) -> None:
    """Raise InvalidSubscription for queues that are not there: their work would wait for a worker
    that believes to serve it."""
    names = {queue_of(name) for name in subscriptions} - {DEFAULT}
    known = queue_terms.queues().terms(names) if names else {}
    if unknown := sorted(names - known.keys()):
        every = sorted({*queue_terms.queues().terms(), DEFAULT})
        near = spelling.near(unknown[0], every)
        meant = f", did you mean {near!r}?" if near else f"; there are {', '.join(every)}"
        raise InvalidSubscription(f"no queue is called {', '.join(map(repr, unknown))}{meant}")


def text(subscriptions: Mapping[str, int | None]) -> str:
    """Write subscriptions as the command takes them; those of the default queue alone as
    nothing."""
    return ",".join(
        name if slots is None else f"{name}={slots}" for name, slots in subscriptions.items()
    )
