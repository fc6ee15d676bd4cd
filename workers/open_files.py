"""The limit of open files of a worker's own process."""

from __future__ import annotations

import resource

import structlog

log = structlog.get_logger(__name__)

OF_A_SLOT = 37
"""Pipes to three warm processes, which a thread of the pool keeps, and what it looks at of them;
pipes to a command; some more."""
OF_A_WORKER = 200
"""Its libraries, its connections, and what it opens for a moment."""


def allow(slots: int) -> None:
    """Raise the soft limit if so many slots may need it: 1,024, the usual one, ends at 22. What an
    action starts inherits it, unless the action has a limit of its own."""
    wanted = OF_A_WORKER + OF_A_SLOT * slots
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_at_least(soft, wanted):
        return
    allowed = wanted if _is_at_least(hard, wanted) else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning("too few open files allowed for all slots", allowed=allowed, wanted=wanted)


def _is_at_least(limit: int, wanted: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= wanted
