"""A health check, asked in a thread of its own."""

from __future__ import annotations

import threading

from django.db import connections

from orchestrator.core import health_checks

ANSWER_SECONDS = 5.0
"""A loop, a pool or a check that does not answer for this long fails."""


class Question:
    """A configured check, called in its own thread: it may never return."""

    def __init__(self, check: health_checks.Check) -> None:
        self.check = check
        self._thread: threading.Thread | None = None
        self._wrong: str | None = None

    def ask(self) -> str | None:
        """Make the check; returns None if it passes, otherwise what is wrong."""
        if self._thread is None:
            thread = threading.Thread(target=self._answer, daemon=True)
            thread.start()
            self._thread = thread
        self._thread.join(ANSWER_SECONDS)
        if self._thread.is_alive():
            return f"no answer within {ANSWER_SECONDS:g} s"
        self._thread = None
        return self._wrong

    def _answer(self) -> None:
        try:
            answer = self.check()
        except Exception as error:  # noqa: BLE001 - whatever a user's check raises, it fails
            self._wrong = repr(error)
        else:
            self._wrong = None if answer is None or answer is True else str(answer)
        finally:
            connections.close_all()
