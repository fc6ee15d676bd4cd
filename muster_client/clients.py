"""The clients: one that blocks, one for asyncio. Both run the same flows over httpx."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import httpx

from muster_client import flows
from muster_client.errors import InvalidArgument
from muster_client.executions import Event, Execution
from muster_client.flows import Flow, Reply, Story
from muster_client.patience import Patience
from muster_client.wire import Answer, NoAnswer, Pause, Request

if TYPE_CHECKING:
    from typing import Self, Unpack

    from muster_client.executions import NewExecution, Options

T = TypeVar("T")

PREFIX = "/api/v1"
TIMEOUT = httpx.Timeout(40.0, connect=5.0)
"""Of one try. The server gives a request 30 seconds."""


class _Client:
    """The common part of both clients: where the API is, the token, and how patient to be."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        patience: Patience | None = None,
        timeout: httpx.Timeout | float = TIMEOUT,
        **httpx_options: Any,
    ) -> None:
        """`url`: the installation, such as `https://muster.example.org`, without `/api/v1`.
        `httpx_options` go to httpx: `verify`, `cert`, `proxy`, `transport` and others."""
        base = url.rstrip("/").removesuffix(PREFIX)
        if not base.startswith(("http://", "https://")):
            raise InvalidArgument(f"url: expected http://... or https://..., found {url!r}")
        if not token:
            raise InvalidArgument(
                "token: expected one that `manage.py token create` shows, found none"
            )
        self.patience = patience or Patience()
        self._httpx_options: dict[str, Any] = {
            "base_url": base + PREFIX,
            "timeout": timeout,
            "headers": {"Authorization": f"Bearer {token}", "User-Agent": "muster-client"},
            **httpx_options,
        }


class Muster(_Client):
    """A client that blocks. Use it as a context manager, or `close` it; threads may share one."""

    def __init__(self, url: str, *, token: str, **options: Any) -> None:
        super().__init__(url, token=token, **options)
        self._http = httpx.Client(**self._httpx_options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(
        self,
        action_ref: str,
        parameters: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Execution:
        """Request an execution, once, however often its answer is lost. A key that was used before
        gives the first execution."""
        return self._run(flows.submit(_new(action_ref, parameters, options), self.patience))

    def submit_many(self, news: Iterable[NewExecution]) -> list[UUID]:
        """Request many in one transaction, all or none; returns their ids in the same order."""
        return self._run(flows.submit_many(news, self.patience))

    def get(self, id: UUID | str) -> Execution:
        """Return an execution with its history. Raises NotFound."""
        return self._run(flows.get(id, self.patience))

    def wait(self, id: UUID | str, *, timeout_seconds: float | None = None) -> Execution:
        """Wait until it has ended, however. Raises StillOpen."""
        return self._run(flows.wait(id, self.patience, timeout_seconds))

    def run(
        self,
        action_ref: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        wait_seconds: float | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Submit, wait, and return the result. Raises ExecutionDidNotComplete, StillOpen."""
        new = _new(action_ref, parameters, options)
        return self._run(flows.run(new, self.patience, wait_seconds)).result

    def cancel(self, id: UUID | str) -> Execution:
        """Cancel an execution; one that runs is `canceling` until its worker has stopped it. Raises
        AlreadyOver if it ended otherwise."""
        return self._run(flows.cancel(id, self.patience))

    def follow(self, id: UUID | str, *, timeout_seconds: float | None = None) -> Iterator[Event]:
        """Yield each event of its history as it happens, up to its end. Raises StillOpen."""
        story: Story = flows.follow(id, self.patience, timeout_seconds)
        reply: Reply = None
        while True:
            try:
                step = story.send(reply)
            except StopIteration:
                return
            if isinstance(step, Event):
                yield step
                reply = None
            else:
                reply = self._do(step)

    def _run(self, flow: Flow[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            reply = self._do(step)

    def _do(self, step: Request | Pause) -> Reply:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return _answer(self._http.request(**_sent(step, self._http.timeout)))
        except httpx.TransportError as error:
            return NoAnswer(_why(error))


class AsyncMuster(_Client):
    """The same for asyncio: `async with AsyncMuster(...) as muster`."""

    def __init__(self, url: str, *, token: str, **options: Any) -> None:
        super().__init__(url, token=token, **options)
        self._http = httpx.AsyncClient(**self._httpx_options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def submit(
        self,
        action_ref: str,
        parameters: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Execution:
        """See `Muster.submit`."""
        return await self._run(flows.submit(_new(action_ref, parameters, options), self.patience))

    async def submit_many(self, news: Iterable[NewExecution]) -> list[UUID]:
        """See `Muster.submit_many`."""
        return await self._run(flows.submit_many(news, self.patience))

    async def get(self, id: UUID | str) -> Execution:
        """See `Muster.get`."""
        return await self._run(flows.get(id, self.patience))

    async def wait(self, id: UUID | str, *, timeout_seconds: float | None = None) -> Execution:
        """See `Muster.wait`."""
        return await self._run(flows.wait(id, self.patience, timeout_seconds))

    async def run(
        self,
        action_ref: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        wait_seconds: float | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """See `Muster.run`."""
        new = _new(action_ref, parameters, options)
        return (await self._run(flows.run(new, self.patience, wait_seconds))).result

    async def cancel(self, id: UUID | str) -> Execution:
        """See `Muster.cancel`."""
        return await self._run(flows.cancel(id, self.patience))

    async def follow(
        self, id: UUID | str, *, timeout_seconds: float | None = None
    ) -> AsyncIterator[Event]:
        """See `Muster.follow`."""
        story: Story = flows.follow(id, self.patience, timeout_seconds)
        reply: Reply = None
        while True:
            try:
                step = story.send(reply)
            except StopIteration:
                return
            if isinstance(step, Event):
                yield step
                reply = None
            else:
                reply = await self._do(step)

    async def _run(self, flow: Flow[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            reply = await self._do(step)

    async def _do(self, step: Request | Pause) -> Reply:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return _answer(await self._http.request(**_sent(step, self._http.timeout)))
        except httpx.TransportError as error:
            return NoAnswer(_why(error))


def _new(
    action_ref: str, parameters: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    if not isinstance(parameters, Mapping | None):
        raise InvalidArgument(f"parameters: expected a mapping, found {parameters!r}")
    return {"action_ref": action_ref, "parameters": dict(parameters or {}), **options}


def _sent(request: Request, timeout: httpx.Timeout) -> dict[str, Any]:
    content = request.content
    headers = {} if content is None else {"Content-Type": "application/json"}
    return {
        "method": request.method,
        "url": request.path,
        "content": content,
        "headers": headers,
        "timeout": _at_most(timeout, request.most_seconds),
    }


def _at_most(timeout: httpx.Timeout, seconds: float) -> httpx.Timeout:
    if seconds == float("inf"):
        return timeout
    limits = timeout.as_dict().items()
    return httpx.Timeout(**{name: min(seconds, limit or seconds) for name, limit in limits})


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)


def _why(error: httpx.TransportError) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
