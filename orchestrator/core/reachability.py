"""The check that database and broker answer now: asked in a thread, with limited patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from django.db import DatabaseError, InterfaceError, connection

from orchestrator.core import brokers, clock, database, frame

PATIENCE_SECONDS = 2.0
"""A server that does not answer for this long counts as down."""

FRESH_SECONDS = 1.0
"""Everybody may call the checks, so the servers are asked at most once a second."""


Answer = TypeVar("Answer")


class Probe(Generic[Answer]):
    """A question to a server that may never answer: asked in a thread, one at a time."""

    def __init__(
        self, question: Callable[[], Answer], *, fresh_seconds: float = FRESH_SECONDS
    ) -> None:
        self.question = question
        self.fresh_seconds = fresh_seconds
        self.lock = threading.Lock()
        self.answer: Future[Answer] | None = None
        self.asked_at = 0.0

    def ask(self) -> Future[Answer]:
        """Return the answer to a new question, or to a pending or recent one."""
        with self.lock:
            age_seconds = time.monotonic() - self.asked_at
            if self.answer is None or (self.answer.done() and age_seconds >= self.fresh_seconds):
                self.answer, self.asked_at = Future(), time.monotonic()
                # a daemon: a server that does not answer must not keep the process from ending
                threading.Thread(target=self._settle, args=[self.answer], daemon=True).start()
            return self.answer

    def _settle(self, answer: Future[Answer]) -> None:
        try:
            answer.set_result(self.question())
        except Exception as error:  # noqa: BLE001 - raised again where the answer is read
            answer.set_exception(error)


def yes(answer: Future[bool], until: float) -> bool:
    """Return the answer, or False if there is none in time; `until`: by `time.monotonic`."""
    return in_time(answer, until, otherwise=False)


def in_time(answer: Future[Answer], until: float, *, otherwise: Answer) -> Answer:
    """Return the answer, or something else if there is none in time."""
    try:
        return answer.result(timeout=max(0, until - time.monotonic()))
    except TimeoutError:
        return otherwise


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
        with brokers.connection() as link:
            link.ensure_connection(max_retries=1, interval_start=0, timeout=int(PATIENCE_SECONDS))
    except brokers.errors():
        return False
    return True


def _warnings_of_apps() -> list[str]:
    try:
        now = clock.now()
        return [line for warn in frame.collect(lambda app: app.warnings) for line in warn(now=now)]
    except (DatabaseError, InterfaceError):
        return []
    finally:
        connection.close()


database_writes = Probe(_database_answers)
broker = Probe(_broker_answers)
warnings = Probe(_warnings_of_apps)
