"""The protocol of a channel's connection, which is `transport.Connection`."""

from __future__ import annotations

from typing import Any, Protocol

from orchestrator.sqlitemq.store import Store
from orchestrator.sqlitemq.wake import Waker


class Link(Protocol):
    owner: int
    waker: Waker

    @property
    def is_usable(self) -> bool: ...

    def usable_store(self) -> Store:
        """Raises RecoverableConnectionError once closed, in a forked child, or if the file broke"""

    def remove_channel(self, channel: Any) -> None: ...

    @property
    def raises_refusals(self) -> bool:
        """True if who publishes without `confirm_select` is told of a refusal by an exception."""

    def confirm(self, channel: Any, tag: int, *, is_refused: bool) -> None:
        """Note that the publish of this tag is committed, or refused; the next drain reports it."""

    def look_again(self) -> None:
        """Look at all queues again, after a consumer or a limit has changed."""

    def room_freed(self) -> None:
        """Note that a full prefetch window has room. Call inside the transaction that settles a
        message."""

    def maintain(self) -> None: ...

    def withdraw(self, consumer: Any) -> list[Any]:
        """Take back the messages fetched for a consumer; returns their delivery tags."""
