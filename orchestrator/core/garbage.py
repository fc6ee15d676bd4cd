"""The times at which Python looks for garbage in a service."""

from __future__ import annotations

import gc

COLLECTS_AFTER = (5_000, 10, 20)
"""New objects before a look at them, and looks before one at older ones. Python's 700 is for small
programs: in a service, batches of rows that are needed for a moment are taken for what stays and
looked through again and again, which took an eighth of an executor's time."""


def settle() -> None:
    """Let what is loaded by now stay, so that no look includes it: a full one would take a tenth of
    a second, in which the process answers nobody."""
    gc.freeze()
    gc.set_threshold(*COLLECTS_AFTER)
    gc.enable()
