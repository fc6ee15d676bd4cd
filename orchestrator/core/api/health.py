"""Health checks: the process is live, and ready for its work. They need no token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal

from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, Field

from orchestrator.core import database, publisher
from orchestrator.core.api.problems import Problem, ProblemDetails
from orchestrator.core.api.replies import reply

router = Router(tags=["health"])

PATIENCE_SECONDS = 2.0
"""A server that does not answer for this long counts as down."""

FRESH_SECONDS = 1.0
"""Everybody may call the checks, so the servers are asked at most once a second."""


class Live(BaseModel):
    """This process answers."""

    status: Literal["live"] = "live"


class Ready(BaseModel):
    """This process can do its work. Without the broker it still accepts executions."""

    status: Literal["ready"] = "ready"
    database: Literal["reachable"] = "reachable"
    broker: Literal["reachable", "unreachable"] = Field(description="Not needed to accept.")


@router.get("/live", auth=None, response={200: Live})
def live(request: HttpRequest) -> HttpResponse:
    """This process answers. No server is asked."""
    return reply(Live())


@router.get("/ready", auth=None, response={200: Ready, 503: ProblemDetails})
def ready(request: HttpRequest) -> HttpResponse:
    """The database can be reached and takes writes. Answers within about two seconds, even if a
    server is down."""
    until = time.monotonic() + PATIENCE_SECONDS
    broker, writable = _broker.ask(), _database.ask()
    if not _yes(writable, until):
        detail = "The database cannot be reached, or takes no writes"
        raise Problem(503, "not-ready", "Not ready", detail, headers={"Retry-After": "5"})
    return reply(Ready(broker="reachable" if _yes(broker, until) else "unreachable"))


class Probe:
    """A question to a server that may never answer: asked in a thread, one at a time."""

    def __init__(self, question: Callable[[], bool]) -> None:
        self.question = question
        self.lock = threading.Lock()
        self.answer: Future[bool] | None = None
        self.asked_at = 0.0

    def ask(self) -> Future[bool]:
        """Return the answer to a new question, or to a pending or recent one."""
        with self.lock:
            age_seconds = time.monotonic() - self.asked_at
            if self.answer is None or (self.answer.done() and age_seconds >= FRESH_SECONDS):
                self.answer, self.asked_at = Future(), time.monotonic()
                # a daemon: a server that does not answer must not keep the process from ending
                threading.Thread(target=self._settle, args=[self.answer], daemon=True).start()
            return self.answer

    def _settle(self, answer: Future[bool]) -> None:
        try:
            answer.set_result(self.question())
        except Exception as error:  # noqa: BLE001 - raised again where the answer is read
            answer.set_exception(error)


def _yes(answer: Future[bool], until: float) -> bool:
    try:
        return answer.result(timeout=max(0, until - time.monotonic()))
    except TimeoutError:
        return False


def _database_answers() -> bool:
    try:
        return database.takes_writes()
    except (DatabaseError, InterfaceError):
        return False
    finally:
        connection.close()


def _broker_answers() -> bool:
    # a new connection: an old one does not show that the broker has died
    try:
        with publisher.connection() as link:
            link.ensure_connection(max_retries=1, interval_start=0, timeout=int(PATIENCE_SECONDS))
    except publisher.errors():
        return False
    return True


_database = Probe(_database_answers)
_broker = Probe(_broker_answers)
