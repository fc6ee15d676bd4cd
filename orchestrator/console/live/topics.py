"""Topics: what a tab may be told of."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.core import authority, frame
from orchestrator.core.authority import Principal

CLOCK, PRESENCE, EXECUTION, TASK = "clock", "presence", "execution", "task"
PATTERN = re.compile(r"([a-z_]{1,40})(:[\w-]{1,64})?")
MOST = 20


def permitted(wanted: Iterable[str], user: Principal) -> frozenset[str]:
    """Those that exist and that the user may know of. They say that something moved, and not
    what, so a permission anywhere is enough."""
    needed = {feed.entity: feed.permission for feed in frame.collect(lambda app: app.feeds)}
    needed[PRESENCE] = "workers.read"
    return frozenset(
        topic for topic in sorted(set(wanted))[:MOST] if _is_permitted(topic, needed, user)
    )


def _is_permitted(topic: str, needed: dict[str, str], user: Principal) -> bool:
    match = PATTERN.fullmatch(topic)
    if match is None:
        return False
    if topic == CLOCK:
        return True
    return match[1] in needed and authority.may(user, needed[match[1]])
