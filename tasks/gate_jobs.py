"""The thread that asks about the jobs of task messages, beside the keeper of their gates."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connections
from django.utils.module_loading import import_string

from orchestrator.core import clock, outages
from orchestrator.queues.gates import jobs
from orchestrator.queues.models import Gate

log = outages.get_logger(__name__)

LOOK_EVERY_SECONDS = 0.25
IDLE_SECONDS = 2.0
"""The interval while no gate asks about jobs."""


class JobChecker(threading.Thread):
    """Asks, several URLs at once, each for a few seconds at most."""

    def __init__(self, gates: Callable[[], Mapping[int, Gate]]) -> None:
        super().__init__(name="muster-gate-jobs", daemon=True)
        self.gates = gates
        self.stopping = threading.Event()
        self.checker = jobs.Checker(ask)

    def run(self) -> None:
        pause_seconds = IDLE_SECONDS
        while not self.stopping.wait(pause_seconds):
            checked = {id: gate for id, gate in self.gates().items() if gate.status_check}
            pause_seconds = LOOK_EVERY_SECONDS if checked else IDLE_SECONDS
            try:
                while checked and self.checker.look(checked, now=clock.now()):
                    pass
            except Exception:
                # the thread must survive every fault; tasks then run without an answer
                log.exception("jobs not asked about, trying again")
                self.stopping.wait(IDLE_SECONDS)
            close_old_connections()
        connections.close_all()


def ask(url: str) -> jobs.Response:
    """Get this URL within the limits of HTTP actions: public addresses and
    MUSTER_HTTP_ALLOWED_NETWORKS, a few seconds, a few bytes, no redirects."""
    send: Any = import_string("workers.isolated.http_request.send")
    answer = send(
        # what a client names is no template
        url="{url}",
        options={"method": "GET", "redirects": 0},
        parameters={"url": url},
        allowed_networks=settings.MUSTER.http_allowed_networks,
        most_bytes=jobs.MOST_BYTES,
        timeout_seconds=jobs.ANSWER_SECONDS,
    )
    details = answer.get("details") or {}
    body = details.get("body", "")
    text = body if isinstance(body, str) else json.dumps(body)
    return jobs.Response(int(details.get("status") or 0), text, details.get("headers") or {})
