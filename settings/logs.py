"""Logging: constant text, data as fields; readable lines, or JSON with `LOG_FORMAT=json`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog
from structlog.typing import EventDict

TIMES = structlog.processors.TimeStamper(fmt="iso", utc=True)


LIMITED = (
    "django.request",
    "django.security",
    "uvicorn.error",
    "orchestrator.access.logins",
    "orchestrator.core.relay",
)
"""Loggers of which others decide how much they log: strangers, or a broker that is away."""

LINES_PER_MINUTE = 60

OWN_TASKS = "muster."
OF_TASKS = ("celery.beat", "celery.worker.strategy", "celery.app.trace")
"""Loggers that write lines for each task."""

LEVELS = ("INFO", "DEBUG", "WARNING", "ERROR", "CRITICAL")
"""Values of `LOG_LEVEL`, the default first."""


class LogBrake(logging.Filter):
    """Lets through so many lines a minute of each of these loggers, and counts the rest.

    The first line after a minute in which some were left out says how many.
    """

    def __init__(self) -> None:
        super().__init__()
        self._minutes: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        is_ours = record.name == "django.request" and record.levelno >= logging.ERROR
        if is_ours or not record.name.startswith(LIMITED) or record.levelno < logging.WARNING:
            return True
        if record.name.startswith("django.security"):
            record.exc_info = None  # what was wrong with the request is in the line
        now = time.monotonic()
        began_at, lines = self._minutes.get(record.name, (now, 0))
        if now - began_at >= 60:
            if lines > LINES_PER_MINUTE:
                left_out = f"left out {lines - LINES_PER_MINUTE} lines of {record.name}"
                logging.getLogger(__name__).warning(left_out)
            began_at, lines = now, 0
        self._minutes[record.name] = (began_at, lines + 1)
        return lines < LINES_PER_MINUTE


class OfOurOwn(logging.Filter):
    """Makes debug lines of those in which Celery says that beat has sent a task of Muster's own, or
    that a process has received it, or that it has succeeded: hundreds a minute, of nothing but
    what goes well. Tasks of others keep theirs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.INFO or not _task_of(record).startswith(OWN_TASKS):
            return True
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _task_of(record: logging.LogRecord) -> str:
    """The name of the task that such a line is about."""
    arguments = record.args
    if isinstance(arguments, Mapping):
        return str(arguments.get("name", ""))
    return str(arguments[-1]) if arguments else ""


def times_as_text(_logger: Any, _method: str, fields: EventDict) -> EventDict:
    """A time among the fields is as the time of the line, and no object of Python's."""
    for name, value in fields.items():
        if isinstance(value, datetime):
            fields[name] = value.isoformat().replace("+00:00", "Z")
    return fields


def configure(*, level: str, as_json: bool) -> dict[str, Any]:
    """Configure structlog; returns the dictionary for Django's LOGGING."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            TIMES,
            times_as_text,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    # what Python itself would print over several lines
    logging.captureWarnings(as_json)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [
                    structlog.stdlib.add_log_level,
                    structlog.stdlib.add_logger_name,
                    TIMES,
                    structlog.processors.format_exc_info,
                ],
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    renderer,
                ],
            }
        },
        "filters": {"brake": {"()": LogBrake}, "of our own": {"()": OfOurOwn}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "structured",
                "filters": ["brake"],
            }
        },
        "loggers": {
            **{name: {"filters": ["of our own"]} for name in OF_TASKS},
            # the pool's, which does not propagate: Python would print its lines as they are
            "multiprocessing": {"handlers": ["stderr"], "propagate": False},
        },
        "root": {"handlers": ["stderr"], "level": level},
    }


def set_level(level: int | str | None) -> None:
    """Apply Celery's `--loglevel`, which must not replace the handlers above."""
    if level is not None:
        logging.getLogger().setLevel(level)
