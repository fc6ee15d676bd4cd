"""A network between a client and the API, whose faults come in the order that a test says, and a
clock that only the client's pauses move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import django.test
import httpx
import pytest

from muster_client import AsyncMuster, Muster, clients, flows

URL = "http://muster.test"

Fault = Callable[[httpx.Request, Callable[[httpx.Request], httpx.Response]], httpx.Response]


def refused(request: httpx.Request, serve: Any) -> httpx.Response:
    raise httpx.ConnectError("Connection refused")


def lost(request: httpx.Request, serve: Any) -> httpx.Response:
    """The API serves the request, and its answer gets lost."""
    assert serve(request).is_success
    raise httpx.ReadTimeout("timed out")


def answered(status: int, body: Any = None, **headers: str) -> Fault:
    """Something answers in the place of the API."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request, serve: httpx.Response(status, headers=named, json=body or {})


class Network(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Serves each request by the API of this process, unless a fault comes first."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.before_each_answer: Callable[[], None] = lambda: None
        self._django = django.test.Client(raise_request_exception=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        return fault(request, self._serve) if fault else self._serve(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self.handle_request(request)

    def silent(self, request: httpx.Request, serve: Any) -> httpx.Response:
        """Nothing answers for as long as the client waits."""
        self.now += request.extensions["timeout"]["read"]
        raise httpx.ReadTimeout("timed out")

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)

    def _serve(self, request: httpx.Request) -> httpx.Response:
        self.before_each_answer()
        answer = self._django.generic(
            request.method,
            request.url.raw_path.decode(),
            request.read(),
            content_type=request.headers.get("content-type", ""),
            headers={"authorization": request.headers["authorization"]},
        )
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


class Awaited:
    """The client for asyncio, called as the other one is. On this network nothing ever waits, so no
    loop is needed, and Django is called on the test's thread; `tests.scenarios` has a loop."""

    def __init__(self, muster: AsyncMuster) -> None:
        self._muster = muster

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                self._awaited(name, *arguments, **keywords).send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError(f"{name} waits for something")

        return call

    async def _awaited(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        called = getattr(self._muster, name)(*arguments, **keywords)
        return [event async for event in called] if name == "follow" else await called

    def close(self) -> None:
        self.aclose()


def connected(network: Network, token: str, kind: str, **options: Any) -> Any:
    """A client of this kind, `Muster` or `AsyncMuster`, on this network."""
    if kind == "Muster":
        return Muster(URL, token=token, transport=network, **options)
    return Awaited(AsyncMuster(URL, token=token, transport=network, **options))


def keep_time(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "time", network)
    monkeypatch.setattr(clients, "time", network)
    monkeypatch.setattr("muster_client.clients.asyncio.sleep", network.sleep_async)
