"""The database as a place: what it is called here, and waiting for it to come up."""

from __future__ import annotations

import hashlib
import time

import structlog
from django.db import connection
from django.db.utils import InterfaceError, OperationalError

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0


def fingerprint() -> str:
    """Eight digits that tell this installation from others on the same machine.

    Ids of workers begin at 1 in each of them.
    """
    place = connection.settings_dict
    named = [connection.vendor, *(str(place.get(key) or "") for key in ("HOST", "PORT", "NAME"))]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:8]


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
