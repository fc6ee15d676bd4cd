"""The secrets of hooks, opened in the API process and kept there while their keys do not change.

Each opening is audited, so it happens once for each version of a key, and not for each delivery.
A key that is added or rotated counts at once: a signature that fits none of the kept secrets is
compared with the keys as they are, before it is refused. One that is revoked counts for at most
`KEPT_SECONDS` more, in processes that have opened it.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.automation.hook_paths import INSTALLATION
from orchestrator.automation.hooks.deliveries import NoSecret
from orchestrator.automation.kept_keys import Kept, Opened
from orchestrator.core.keyholder import Wanted

GETS = "webhook"
"""Stands where the name of an action does, in the scopes of keys and in the audit."""


def values(opened: Opened) -> Sequence[str]:
    """The secrets. Raises NoSecret if there is none."""
    if not opened.values:
        raise NoSecret(" ".join(opened.refusals))
    return tuple(opened.values.values())


def _wanted(reference: str) -> Wanted:
    """A key of a pack is opened for that pack's hooks; one of the installation for those of Muster,
    so `core` has to be among the packs that may get it."""
    owner = reference.partition("/")[0]
    pack = "core" if owner == INSTALLATION else owner
    return Wanted(reference, f"{pack}.{GETS}", 0)


kept = Kept(_wanted)
