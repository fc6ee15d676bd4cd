"""A client of a WebSocket that leaves, or reads nothing, leaves the hub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.notifications.play import notification
from tests.notifications.test_hub import credential
from workers.notifier import websocket
from workers.notifier.admission import Visit
from workers.notifier.hub import Hub
from workers.notifier.websocket import GOING_AWAY

PING = {"type": "websocket.receive", "text": '{"type": "ping"}'}
ALL = {"type": "websocket.receive", "text": '{"type": "subscribe", "filter": "all"}'}
BYE = {"type": "websocket.disconnect"}
WITHIN_SECONDS = 10.0


class Link:
    """A connection as a server has it: what came, what was sent, and how sending goes."""

    def __init__(self, hub: Hub, *messages: dict[str, Any]) -> None:
        self.hub = hub
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in ({"type": "websocket.connect"}, *messages):
            self.incoming.put_nowait(message)
        self.sent: list[dict[str, Any]] = []
        self.fails: Callable[[dict[str, Any]], bool] = lambda message: False
        self.hangs = False

    async def send(self, message: dict[str, Any]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails(message):
            raise OSError("the client has gone")
        self.sent.append(message)

    async def serve(self) -> None:
        async def run(call: Any) -> Any:
            return credential()

        async def ready() -> None: ...

        service: Any = SimpleNamespace(hub=self.hub, run=run, start=lambda: None, ready=ready)
        visit = Visit({"headers": []})
        async with asyncio.timeout(WITHIN_SECONDS):
            await websocket.serve(service, visit, self.incoming.get, self.send)

    @property
    def said(self) -> list[str]:
        return [json.loads(each["text"])["type"] for each in self.sent if "text" in each]


def test_client_that_leaves_while_it_is_answered_leaves_the_hub() -> None:
    async def run() -> Hub:
        link = Link(Hub(), PING, BYE)
        link.fails = lambda message: "pong" in message.get("text", "")
        await link.serve()
        return link.hub

    assert len(asyncio.run(run())) == 0


def test_client_that_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "SEND_SECONDS", 0.05)

    async def run() -> Hub:
        link = Link(Hub(), ALL)
        serving = asyncio.create_task(link.serve())
        while "subscribed" not in link.said:
            await asyncio.sleep(0)
        link.hangs = True
        link.hub.publish([notification()])
        await serving
        return link.hub

    assert len(asyncio.run(run())) == 0


def test_client_that_has_to_go_gets_no_more_of_its_line() -> None:
    async def run() -> Link:
        link = Link(Hub(), ALL)
        serving = asyncio.create_task(link.serve())
        while "subscribed" not in link.said:
            await asyncio.sleep(0)
        link.hub.publish([notification(id=str(number)) for number in range(5)])

        def is_first(message: dict[str, Any]) -> bool:
            if "notification" in message.get("text", ""):
                link.hub.close("the credential is no longer good")
            return False

        link.fails = is_first
        await serving
        return link

    link = asyncio.run(run())
    assert link.said.count("notification") == 1
    assert link.sent[-1]["type"] == "websocket.close"
    assert link.sent[-1]["code"] == GOING_AWAY
    assert link.sent[-1]["reason"] == "the credential is no longer good"


def test_resuming_after_a_number_is_an_error_and_subscribes_to_nothing() -> None:
    async def run() -> Link:
        text = '{"type": "subscribe", "filter": "all", "after": 5}'
        link = Link(Hub(), {"type": "websocket.receive", "text": text}, BYE)
        await link.serve()
        return link

    link = asyncio.run(run())
    assert link.said == ["welcome", "error"]
    answer = json.loads(link.sent[-1]["text"])
    assert answer["message"] == 'after: expected a text, as in "after": "HUB:SEQ"; found 5'


@pytest.mark.parametrize("origin", [b"http://[", b"https://evil.example"])
def test_page_of_another_host_or_of_none_is_not_from_here(origin: bytes) -> None:
    visit = Visit({"headers": [(b"origin", origin), (b"host", b"muster.example")]})
    assert not visit.is_from_here()
