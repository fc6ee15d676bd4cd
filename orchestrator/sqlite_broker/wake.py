"""Waking consumers at once. Polling would find a message too; this only makes it sooner.

Each consuming connection waits on a datagram socket, and whoever commits a message sends one empty
datagram to the consumers of its queue. The sockets have abstract names, which Linux alone has:
they leave no file behind and vanish with their process. Elsewhere there is no address, and
consumers poll.
"""

import select
import socket
import time
import uuid
from collections.abc import Iterable


class Waker:
    """The receiving end, one for each connection that consumes."""

    def __init__(self) -> None:
        self.address = ""
        self.socket: socket.socket | None = None
        waiting = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name = f"sqlitemq-{uuid.uuid4().hex}"
            waiting.setblocking(False)
            waiting.bind(f"\0{name}")
        except OSError:
            waiting.close()
            return
        self.address, self.socket = name, waiting
        self._poll = select.poll()
        self._poll.register(waiting, select.POLLIN)

    def wait(self, timeout_seconds: float) -> None:
        """Return when woken, or after the timeout."""
        if self.socket is None:
            time.sleep(timeout_seconds)
        elif self._poll.poll(timeout_seconds * 1000):
            self.clear()

    def clear(self) -> None:
        """Swallow what has piled up: one look at the queues answers all of it."""
        try:
            while self.socket is not None and self.socket.recv(16) is not None:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


class Bell:
    """The sending end, one for each process."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def ring(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            try:
                self._socket.sendto(b"", f"\0{address}")
            except OSError:  # gone, or so many wake-ups wait already that it will look anyway
                continue

    def close(self) -> None:
        self._socket.close()
