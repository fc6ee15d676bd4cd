"""Server-Sent Events: `GET /api/v1/stream`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from orchestrator.core.api import problems
from orchestrator.core.api.problems import FieldProblem
from orchestrator.notifications import filters
from orchestrator.notifications.filters import Filter, WrongFilter
from workers.notifier.admission import Visit, admit
from workers.notifier.hub import Client, Hub, Item, NoRoom, last_id
from workers.notifier.service import Service

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": here\n\n"
RETRY_MS = 2_000
SEND_SECONDS = 30.0
"""A client that takes nothing for so long is let go."""
PARAMETERS = {"type", "entity", "pack", "user", "after", "ticket"}

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


async def serve(service: Service, visit: Visit, receive: Any, send: Any) -> None:
    """Answer one request with a stream, until either side ends it. Raises Problem."""
    wanted = _filter(visit)
    credential = await service.run(lambda: admit(visit))
    service.start()
    try:
        client = service.hub.join(credential)
    except NoRoom as error:
        raise problems.too_many(str(error), 5) from None
    try:
        await service.ready()
        service.hub.subscribe(client, "", wanted)
        after = visit.headers.get("last-event-id") or visit.one("after")
        if after:
            service.hub.resume(client, "", after)
        await _speak(service.hub, client, visit, receive, send)
    finally:
        service.hub.leave(client)


def _filter(visit: Visit) -> Filter:
    unknown = visit.query.keys() - PARAMETERS - {"token", "access_token"}
    if unknown:
        name = sorted(unknown)[0]
        known = ", ".join(sorted(PARAMETERS))
        raise problems.invalid(
            [FieldProblem(pointer=f"?{name}", message=f"expected one of {known}")]
        )
    try:
        return filters.of_query(
            visit.values("type"), visit.values("entity"), visit.values("pack"), visit.values("user")
        )
    except WrongFilter as error:
        name = str(error).partition(":")[0]
        pointer = f"?{name}" if name in PARAMETERS else "?type"
        raise problems.invalid([FieldProblem(pointer=pointer, message=str(error))]) from None


async def _speak(hub: Hub, client: Client, visit: Visit, receive: Any, send: Any) -> None:
    headers = list(HEADERS)
    if visit.origin:
        allowed = visit.origin.encode("latin-1")
        headers += [(b"access-control-allow-origin", allowed), (b"vary", b"Origin")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await _send(send, f"retry: {RETRY_MS}\nid: {last_id(hub, ())}\n\n".encode())
    gone = asyncio.create_task(_until_gone(receive, client))
    try:
        while not client.is_closed:
            had_gap, items = await client.take(within_seconds=HEARTBEAT_SECONDS)
            await _send(send, _text(hub, items, had_gap=had_gap) or HEARTBEAT)
        if not gone.done():
            await _send(send, f": {client.why_closed}\n\n".encode(), more=False)
    except TimeoutError:
        log.info("a client that took nothing was let go")
    finally:
        gone.cancel()


async def _until_gone(receive: Any, client: Client) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client.close("the client has gone")


async def _send(send: Any, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})


def _text(hub: Hub, items: Sequence[Item], *, had_gap: bool) -> bytes:
    texts = [f"id: {hub.name}:{item.seq}\ndata: {item.text}\n\n" for item in items]
    if had_gap:
        texts.insert(0, f"event: gap\nid: {last_id(hub, ())}\ndata: {{}}\n\n")
    return "".join(texts).encode()
