"""Logging: constant text, data as fields; readable lines, or JSON with `LOG_FORMAT=json`."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

TIMES = structlog.processors.TimeStamper(fmt="iso", utc=True)


def configure(*, level: str, as_json: bool) -> dict[str, Any]:
    """Configure structlog; returns the dictionary for Django's LOGGING, which carries it."""
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
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
        "root": {"handlers": ["stderr"], "level": level},
    }


def set_level(level: int | str | None) -> None:
    """Celery's `--loglevel`, which must not replace the handlers above."""
    if level is not None:
        logging.getLogger().setLevel(level)
