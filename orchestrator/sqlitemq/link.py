"""What a channel asks of its connection, which is `transport.Connection`."""

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

    def confirm(self, channel: Any, tag: int) -> None:
        """The publish with this tag and all before it are committed; told by the next drain."""

    def look_again(self) -> None:
        """A consumer or a limit has changed: what was passed over may be wanted now."""

    def room_freed(self) -> None:
        """Call inside the transaction that settles a message: a full prefetch window has room."""

    def maintain(self) -> None: ...

    def withdraw(self, consumer: Any) -> list[Any]:
        """Take back what was fetched for a consumer; returns the delivery tags."""
