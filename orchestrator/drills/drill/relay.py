"""A TCP relay between the drill's worker and the broker, which can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

CHUNK_BYTES = 65_536


class Relay:
    """Listens on a port of 127.0.0.1 and forwards all data until it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        with self._lock:
            self._is_cut = True
            broken, self._sockets = self._sockets, set()
        for each in broken:
            _break(each)

    def mend(self) -> None:
        self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                if self._is_cut:
                    raise ConnectionRefusedError
                far = socket.create_connection(self.target, timeout=5)
                far.settimeout(None)
            except OSError:
                _break(near)
                continue
            with self._lock:
                self._sockets |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                sink.sendall(chunk)
        for each in (source, sink):
            with self._lock:
                self._sockets.discard(each)
            _break(each)


def _break(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()
