"""WebSocket: `/api/v1/ws`. A client subscribes to filters, one by one, and may change its mind.

-> {"type": "subscribe", "filter": "entity_type:execution"}
<- {"type": "subscribed", "filter": "entity_type:execution"}
<- {"type": "notification", "notification": {"seq": 7, "type": "execution.running", ...}}
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError

from orchestrator.core.api.problems import Problem
from orchestrator.notifications import filters
from orchestrator.notifications.filters import WrongFilter
from workers.notifier.admission import Visit, admit
from workers.notifier.hub import Client, Hub, Item, NoRoom, last_id
from workers.notifier.service import Service

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 15.0
SEND_SECONDS = 30.0
"""A client that takes nothing for so long is let go."""
POLICY_VIOLATION, TRY_AGAIN_LATER, GOING_AWAY = 1008, 1013, 1001
MOST_BYTES = 4_096
VERBS = "subscribe, unsubscribe, ping"


class Unclear(Exception):
    """The client sent something that is no message; the text says what is expected."""


async def serve(service: Service, visit: Visit, receive: Any, send: Any) -> None:
    """Speak with one client, until either side ends it."""
    await receive()  # the request to connect
    try:
        credential = await service.run(lambda: admit(visit))
        service.start()
        client = service.hub.join(credential)
    except (Problem, NoRoom, DatabaseError, InterfaceError) as error:
        await _refuse(send, error)
        return
    try:
        await _send(send, {"type": "websocket.accept"})
        await service.ready()
        await _say(send, {"type": "welcome", "id": last_id(service.hub, ())})
        await _speak(service.hub, client, receive, send)
    except TimeoutError:
        log.info("a client that took nothing was let go")
    except OSError:
        pass  # it went while it was sent something
    finally:
        service.hub.leave(client)


async def _refuse(send: Any, error: Exception) -> None:
    """Accept and close at once: a browser shows a code and a reason only of an open socket."""
    await _send(send, {"type": "websocket.accept"})
    code = POLICY_VIOLATION if isinstance(error, Problem) else TRY_AGAIN_LATER
    why = str(error) if isinstance(error, Problem | NoRoom) else "the database did not answer"
    await _close(send, code, why)


async def _speak(hub: Hub, client: Client, receive: Any, send: Any) -> None:
    hearing = asyncio.create_task(_hear(hub, client, receive, send))
    hearing.add_done_callback(lambda task: _heard_last(client, task))
    try:
        while not client.is_closed:
            had_gap, items = await client.take(within_seconds=HEARTBEAT_SECONDS)
            await _deliver(hub, client, items, send, had_gap=had_gap)
        if not hearing.done():
            await _close(send, GOING_AWAY, client.why_closed)
    finally:
        hearing.cancel()


def _heard_last(client: Client, hearing: asyncio.Task[None]) -> None:
    """Let the client go, however its hearing has ended: nobody would notice that it leaves."""
    error = None if hearing.cancelled() else hearing.exception()
    if error is not None and not isinstance(error, OSError):
        log.error("a client was heard no more", exc_info=error)
    client.close(client.why_closed or "the client has gone")


async def _deliver(
    hub: Hub, client: Client, items: Sequence[Item], send: Any, *, had_gap: bool
) -> None:
    """Send what is due, unless the client has gone, or has to go."""
    if had_gap and not client.is_closed:
        await _say(send, {"type": "gap", "id": last_id(hub, ())})
    for item in items:
        if client.is_closed:
            return
        await _send(send, {"type": "websocket.send", "text": _text(item)})


def _text(item: Item) -> str:
    return f'{{"type":"notification","notification":{item.text}}}'


async def _hear(hub: Hub, client: Client, receive: Any, send: Any) -> None:
    """Take what the client says, until it leaves."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            answer = _answer(hub, client, message.get("text"))
        except (WrongFilter, Unclear) as error:
            answer = {"type": "error", "message": str(error)}
        await _say(send, answer)


def _answer(hub: Hub, client: Client, text: str | None) -> dict[str, Any]:
    said = _read(text)
    verb, name = said.get("type"), said.get("filter")
    if verb == "ping":
        return {"type": "pong"}
    if verb not in ("subscribe", "unsubscribe"):
        raise Unclear(f"type: expected one of {VERBS}; found {verb!r:.80}")
    if not isinstance(name, str):
        raise Unclear(f"filter: expected one of {filters.FORMS}; found {name!r:.80}")
    if verb == "unsubscribe":
        if not hub.unsubscribe(client, name):
            raise Unclear(f"filter: {name!r:.80} is not subscribed to")
        return {"type": "unsubscribed", "filter": name}
    after = said.get("after")
    if not isinstance(after, str | None):
        # a `seq` alone does not say of which hub it is
        raise Unclear(f'after: expected a text, as in "after": "HUB:SEQ"; found {after!r:.80}')
    hub.subscribe(client, name, filters.of_text(name))
    if after is not None:
        hub.resume(client, name, after)
    return {"type": "subscribed", "filter": name}


def _read(text: str | None) -> dict[str, Any]:
    expected = 'Expected a text such as {"type": "subscribe", "filter": "all"}'
    if text is None or len(text) > MOST_BYTES:
        raise Unclear(f"{expected}, of at most {MOST_BYTES} characters")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise Unclear(f"{expected}; found no JSON") from None
    if not isinstance(said, dict):
        raise Unclear(f"{expected}; found no object")
    return said


async def _say(send: Any, message: dict[str, Any]) -> None:
    text = json.dumps(message, separators=(",", ":"))
    await _send(send, {"type": "websocket.send", "text": text})


async def _send(send: Any, message: dict[str, Any]) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send(message)


async def _close(send: Any, code: int, why: str) -> None:
    # at most 123 bytes fit into the frame
    reason = why.encode()[:120].decode(errors="ignore")
    await _send(send, {"type": "websocket.close", "code": code, "reason": reason})
