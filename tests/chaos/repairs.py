"""The operator of a storm: resets steps that have failed for good, and ends tasks in error."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from uuid import UUID

import httpx
import psycopg

from tests.chaos import evidence

LOOK_EVERY_SECONDS = 1.0

FAILED = (
    "SELECT step.id, step.task_id FROM workflows_step AS step "
    "JOIN workflows_task AS task ON task.id = step.task_id "
    "WHERE step.state = 'error' AND task.state = 'blocked_by_failures'"
)
STALE = "SELECT id FROM workflows_task WHERE state = 'error'"


class Operator(threading.Thread):
    """Repairs each task that cannot go on, until it is told to stop."""

    def __init__(self, database: evidence.Database, http: Callable[[], httpx.Client]) -> None:
        super().__init__(name="operator", daemon=True)
        self.database, self.http = database, http
        self.repairs = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_EVERY_SECONDS):
            self.repair()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def repair(self) -> None:
        """Reset every failed step of a task that is blocked, cancel what took too long; what does
        not work comes again."""
        gone = (psycopg.Error, sqlite3.Error, httpx.HTTPError)
        with contextlib.suppress(*gone):
            failed, stale = self.database.select(FAILED), self.database.select(STALE)
            if not failed and not stale:
                return
            with self.http() as http:
                for row in failed:
                    step, task = (UUID(str(row[key])) for key in ("id", "task_id"))
                    told = {"action_type": "reset_for_retry", "reason": "its worker is back"}
                    answer = http.patch(f"/tasks/{task}/workflow_steps/{step}", json=told)
                    self.repairs += answer.status_code == 200
                for row in stale:
                    http.delete(f"/tasks/{UUID(str(row['id']))}")
