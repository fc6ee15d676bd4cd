"""Wake consumers at once. Polling would find a message too, only later.

Each connection waits on a datagram socket, and the process that commits a message sends an empty
datagram to the consumers of its queue. On Linux the sockets have abstract names: they leave no file
behind and disappear with their process. Elsewhere they are files in the temporary directory.
"""

import contextlib
import os
import select
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable


class Waker:
    """The receiving end, one for each connection."""

    def __init__(self) -> None:
        name = f"sqlitemq-{uuid.uuid4().hex}"
        linux = sys.platform == "linux"
        self.address = f"@{name}" if linux else os.path.join(tempfile.gettempdir(), name)
        self.socket: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        try:
            self.socket.bind(_socket_name(self.address))
        except OSError:  # a path too long, or a directory that is not writable: then it polls
            self.close()
            self.address = ""
            return
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)

    def wait(self, timeout_seconds: float) -> None:
        """Return when woken, or after the timeout."""
        if self.socket is None:
            time.sleep(timeout_seconds)
        elif self._poll.poll(timeout_seconds * 1000):
            self.clear()

    def wake(self) -> None:
        """Make the socket readable, so that the event loop returns to it."""
        if self.socket is not None:
            with contextlib.suppress(OSError):  # full, so it is readable
                self.socket.sendto(b"", _socket_name(self.address))

    def clear(self) -> None:
        """Read all waiting wake-ups: one look at the queues answers them all."""
        with contextlib.suppress(BlockingIOError):
            while self.socket is not None:
                self.socket.recv(16)

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None
            remove(self.address)


class Bell:
    """The sending end, one for each process."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def ring(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            # gone, or full of wake-ups, so that it will look anyway
            with contextlib.suppress(OSError):
                self._socket.sendto(b"", _socket_name(address))

    def close(self) -> None:
        self._socket.close()


def remove(address: str) -> None:
    """Remove the file of a socket whose process has died; abstract names leave none."""
    if address.startswith("/"):
        with contextlib.suppress(OSError):
            os.unlink(address)


def _socket_name(address: str) -> str:
    return address.replace("@", "\0", 1)
