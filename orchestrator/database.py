"""Waiting for a database that is not up yet: services start in any order."""

from __future__ import annotations

import time

import structlog
from django.db import connection
from django.db.utils import InterfaceError, OperationalError

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0


def wait_until_reachable() -> None:
    """Return once the database answers; says what is wrong at each attempt: 0.5, 1 ... 5 s apart.

    A database that answers and lacks our tables is not waited for: that is an error of its own.
    """
    pause_seconds = FIRST_PAUSE_SECONDS
    while True:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            return
        except (OperationalError, InterfaceError) as error:
            connection.close()
            log.warning(
                "database not reachable, trying again",
                host=connection.settings_dict.get("HOST") or "this machine",
                database=str(connection.settings_dict["NAME"]),
                error=" ".join(str(error).split())[:200],
                again_in_seconds=pause_seconds,
            )
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
