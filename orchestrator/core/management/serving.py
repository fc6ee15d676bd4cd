"""uvicorn in the process of a command."""

from __future__ import annotations

import signal
import sys
from typing import Any

import uvicorn


def run(application: str, *, host: str, port: int, graceful_seconds: int, **options: Any) -> None:
    """Serve until SIGTERM or SIGINT; then this process exits with 0. uvicorn raises the signal
    again when it has shut down, for whoever handled it before: without a handler of ours, the
    process would end by it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped_on_request)
    uvicorn.run(
        application,
        host=host,
        port=port,
        http="settings.connections:LimitedProtocol",
        ws="websockets-sansio",
        ws_max_size=65_536,
        ws_per_message_deflate=False,  # for a few bytes, a window of 32 KB a client
        server_header=False,
        log_config=None,  # Django's handlers take the lines
        timeout_graceful_shutdown=graceful_seconds,
        **options,
    )


def _stopped_on_request(*_: Any) -> None:
    sys.exit(0)
