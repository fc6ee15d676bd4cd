"""Celery's lines of each message: those of Muster's own tasks are debug, those of others stay."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from settings import logs

BEAT = ("Scheduler: Sending due task %s (%s)",)
WORKER = "Task %(name)s[%(id)s] succeeded"


def line(logger: str, message: str, *arguments: Any, level: int = logging.INFO) -> str | None:
    """The level with which a line goes on, or None if it does not."""
    logging.getLogger(logger).setLevel(logging.INFO)
    record = logging.LogRecord(logger, level, "", 0, message, arguments, None)
    return record.levelname if logs.OfOurOwn().filter(record) else None


@pytest.fixture(autouse=True)
def _levels() -> Any:
    before = {name: logging.getLogger(name).level for name in logs.OF_TASKS}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_lines_of_our_own_tasks_are_left_out_and_those_of_others_stay() -> None:
    assert line("celery.beat", *BEAT, "muster.prune", "muster.prune") is None
    assert line("celery.beat", *BEAT, "nightly", "shop.tasks.report") == "INFO"
    assert line("celery.app.trace", WORKER, {"name": "muster.run", "id": "1"}) is None
    assert line("celery.app.trace", WORKER, {"name": "shop.tasks.report", "id": "1"}) == "INFO"
    assert line("celery.worker.strategy", "nothing to say") == "INFO"


def test_what_fails_is_a_line_whoever_runs_it() -> None:
    failed = {"name": "muster.prune", "id": "1"}
    assert line("celery.app.trace", WORKER, failed, level=logging.ERROR) == "ERROR"
