"""Clients of streams: of Server-Sent Events, and of WebSocket."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import urlencode, urlsplit

from websockets.sync.client import ClientConnection, connect

WAIT_SECONDS = 30.0
PATH = "/api/v1/stream"


class Stream:
    """One stream, read by a thread until either side ends it."""

    def __init__(
        self, url: str, token: str = "", *, after: str = "", headers: Any = (), **query: Any
    ) -> None:
        place = urlsplit(url)
        self._link = http.client.HTTPConnection(f"{place.hostname}:{place.port}", timeout=60)
        sent = dict(headers)
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if after:
            sent["Last-Event-ID"] = after
        path = f"{PATH}?{urlencode(query, doseq=True)}" if query else PATH
        self._link.request("GET", path, headers=sent)
        self._socket = self._link.sock
        self.answer = self._link.getresponse()
        self.status = self.answer.status
        self.told: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.gaps = 0
        self.last_id = ""
        self.has_ended = threading.Event()
        self.problem: dict[str, Any] = {}
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()
            self.wait_for(lambda: self.last_id)
        else:
            self.problem = json.loads(self.answer.read())
            self._link.close()

    def _read(self) -> None:
        event = ""
        try:
            for line in self.answer:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    event = value
                elif name == "id":
                    self.last_id = value
                elif name == "data" and event == "gap":
                    self.gaps += 1
                elif name == "data":
                    self.told.append(json.loads(value))
                    self.times.append(time.monotonic())
                elif not name:
                    event = ""
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # it was closed
        self.has_ended.set()

    def types_of(self, id: Any) -> list[str]:
        """The types of what was told of one thing, in order."""
        return [one["type"] for one in list(self.told) if one["id"] == str(id)]

    def wait_for(self, look: Callable[[], Any], *, within_seconds: float = WAIT_SECONDS) -> Any:
        return wait_for(look, lambda: f"told: {self.told[-20:]}", within_seconds=within_seconds)

    def wait_for_type(self, type: str, id: Any, *, within_seconds: float = WAIT_SECONDS) -> None:
        self.wait_for(lambda: type in self.types_of(id), within_seconds=within_seconds)

    def close(self) -> None:
        # which wakes the thread that reads; a mere close would not
        with contextlib.suppress(OSError):
            self._socket.shutdown(SHUT_RDWR)
        if self.status == 200:
            self.has_ended.wait(WAIT_SECONDS)
        self.answer.close()
        self._link.close()


def wait_for(
    look: Callable[[], Any], say: Callable[[], str], *, within_seconds: float = WAIT_SECONDS
) -> Any:
    until = time.monotonic() + within_seconds
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {within_seconds} s; {say()}")


@contextlib.contextmanager
def socket(url: str, token: str, **query: str) -> Iterator[ClientConnection]:
    """An open WebSocket, whose welcome is read."""
    address = url.replace("http", "ws") + "/api/v1/ws"
    address += f"?{urlencode(query)}" if query else ""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with connect(address, additional_headers=headers, open_timeout=WAIT_SECONDS) as link:
        assert heard(link)["type"] == "welcome"
        yield link


def heard(link: ClientConnection, *, within_seconds: float = WAIT_SECONDS) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(link.recv(timeout=within_seconds))
    return said


def asked(link: ClientConnection, **message: str) -> dict[str, Any]:
    """Say something; the answer, past notifications."""
    link.send(json.dumps(message))
    while (answer := heard(link))["type"] == "notification":
        pass
    return answer
