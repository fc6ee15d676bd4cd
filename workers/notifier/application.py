"""The application of `manage.py notifier`: streams, tickets for them, and its health."""

from __future__ import annotations

import json
import time
from importlib import import_module
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from workers.notifier.doors import STREAM, Doors

READ_WITHIN_SECONDS = 10.0
LIVE, READY = "/api/v1/health/live", "/api/v1/health/ready"
TICKETS = f"{STREAM}/tickets"


class Rest:
    """The answers of a notifier besides streams."""

    def __init__(self) -> None:
        self.doors: Doors
        self.django = _django()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path == TICKETS:
            await self.django(scope, receive, send)
        elif path == LIVE:
            await _say(send, 200, {"status": "live"})
        elif path == READY:
            problem = self._problem()
            content = {"status": "not ready" if problem else "ready", "problem": problem or None}
            await _say(send, 503 if problem else 200, content)
        else:
            detail = f"A notifier answers {STREAM}, /api/v1/ws and {READY}; ask an API process"
            await _say(send, 404, {"title": "Not found", "status": 404, "detail": detail})

    def _problem(self) -> str:
        """The reason why clients would get nothing; empty if they get something. Without the
        broker, they only hear later."""
        follower = self.doors.service.follower
        if follower is None:
            return "it has not started"
        is_late = time.monotonic() - follower.read_at > READ_WITHIN_SECONDS
        if follower.is_following.is_set() and is_late:
            return "the database cannot be read"
        return ""


def _django() -> Any:
    """Django's application, whose threads are those of the API."""
    import_module(settings.ROOT_URLCONF)
    handler = import_string(settings.HTTP_HANDLER)
    return handler()


async def _say(send: Any, status: int, content: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


_rest = Rest()
application = _rest.doors = Doors(_rest, kind="notifier", starts_at_once=True)
