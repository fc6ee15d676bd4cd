"""The ASGI application around Django's: it answers streams itself, and passes everything else on.

Django answers each request in a thread; a thousand streams would need a thousand of them.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest

from orchestrator.console.live.hub import hub
from orchestrator.core import presence
from orchestrator.core.api import problems
from orchestrator.core.api.problems import Problem
from workers.notifier import sse, websocket
from workers.notifier.admission import Visit
from workers.notifier.service import Service

log = structlog.get_logger(__name__)

STREAM = "/api/v1/stream"
SOCKET = "/api/v1/ws"


class Doors:
    """One for each process; `django` is its other application."""

    def __init__(self, django: Any, *, kind: str = "api", starts_at_once: bool = False) -> None:
        self.django = django
        self.service = Service()
        self._kind, self._starts_at_once = kind, starts_at_once

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["path"] == STREAM:
            await self._stream(scope, receive, send)
        else:
            await self.django(scope, receive, send)

    async def _stream(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            if scope["method"] != "GET":
                raise problems.plain(405, "A stream is asked for by GET", Allow="GET")
            await sse.serve(self.service, Visit(scope), receive, send)
        except Problem as problem:
            await _answer(problem, send)
        except (DatabaseError, InterfaceError):
            await _answer(problems.database_unavailable(), send)

    async def _socket(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != SOCKET:
            await send({"type": "websocket.close"})
            return
        await websocket.serve(self.service, Visit(scope), receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        """Start with the server, and end with it."""
        here = presence.Presence(self._kind)
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                here.start()
                self.service.live_in(asyncio.get_running_loop())
                _before_signals(self.service)
                if self._starts_at_once:
                    self.service.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                here.stop()
                hub.close()
                self.service.close()
                await self.service.closed()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _answer(problem: Problem, send: Any) -> None:
    request = HttpRequest()
    request.path = STREAM
    response = problems.respond(request, problem)
    response["Cache-Control"] = "no-store"
    headers = [(n.lower().encode(), v.encode("latin-1")) for n, v in response.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


def _before_signals(service: Service) -> None:
    """Let the clients go when the server is told to stop: it waits for all answers to end, and a
    stream never does."""
    if threading.current_thread() is not threading.main_thread():
        return

    def wrap(before: Any) -> Callable[[int, FrameType | None], None]:
        def stop(number: int, frame: FrameType | None) -> None:
            service.close_soon()
            hub.close_soon()
            if callable(before):
                before(number, frame)

        return stop

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, wrap(signal.getsignal(number)))
