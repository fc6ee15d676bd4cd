"""Logging: constant text, data as fields; readable lines, or JSON with `LOG_FORMAT=json`."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import structlog

TIMES = structlog.processors.TimeStamper(fmt="iso", utc=True)


LIMITED = ("django.request", "django.security", "uvicorn.error", "orchestrator.access.logins")
"""Loggers of which a stranger decides how much they log."""

LINES_PER_MINUTE = 60

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


def configure(*, level: str, as_json: bool) -> dict[str, Any]:
    """Configure structlog; returns the dictionary for Django's LOGGING."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            TIMES,
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
        "filters": {"brake": {"()": LogBrake}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "structured",
                "filters": ["brake"],
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
    }


def set_level(level: int | str | None) -> None:
    """Apply Celery's `--loglevel`, which must not replace the handlers above."""
    if level is not None:
        logging.getLogger().setLevel(level)
