"""Isolation levels: what an action's code is kept away from.

    trusted    it runs in the worker's pool, with all that the worker knows
    process    in a process of its own, as the worker's user: no credentials, limits
    user       the same, as the user of MUSTER_ACTION_USER
    container  in a container of its own

An action's pack states its level. `MUSTER_LEAST_ISOLATION` and `MUSTER_ACTION_USER` raise the
levels of all actions; nothing lowers one.
"""

from __future__ import annotations

import functools
import os
import pwd
from typing import Any

from django.conf import settings

TRUSTED, PROCESS, USER, CONTAINER = LEVELS = ("trusted", "process", "user", "container")
"""From the weakest to the strongest."""


def strongest(*levels: str) -> str:
    return max(levels, key=LEVELS.index)


def is_enough(given: str, wanted: str) -> bool:
    return LEVELS.index(given) >= LEVELS.index(wanted)


def least() -> str:
    """The weakest level at which this installation runs any action."""
    stated: str = settings.MUSTER.least_isolation
    return strongest(stated, USER) if settings.MUSTER.action_user else stated


def of_processes() -> str:
    """The level that a worker on this host gives to the processes of actions."""
    return USER if settings.MUSTER.action_user else PROCESS


def user() -> pwd.struct_passwd | None:
    """The user that actions run as, if it is not that of this process. Raises KeyError for one
    that does not exist."""
    name = settings.MUSTER.action_user
    return _user_named(name) if name else None


@functools.cache
def _user_named(name: str) -> pwd.struct_passwd:
    return pwd.getpwnam(name)


def as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """The options of `subprocess.Popen` for a process of this user, with no group but its own."""
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def why_not(level: str) -> str:
    """The reason why a worker that is started like this process cannot give a level; empty if it
    can. Containers depend on an engine, which is asked elsewhere."""
    name = settings.MUSTER.action_user
    if level != USER:
        return ""
    if not name:
        return "MUSTER_ACTION_USER is not set"
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return f"MUSTER_ACTION_USER is {name}, and there is no such user"
    if user.pw_uid == 0:
        return f"MUSTER_ACTION_USER is {name}, which is root: no action may be"
    if os.geteuid() != 0:
        return f"MUSTER_ACTION_USER is {name}, and only a worker that runs as root can change users"
    return ""


def note(level: str) -> str:
    """The facts that an author has to know of a level here; empty if actions simply have it."""
    if level == USER and (why := why_not(USER)):
        return f"not on a worker that is started like this command: {why}"
    if not is_enough(level, least()):
        return f"its actions run at {least()}, the least that this installation allows"
    return ""
