"""What this worker's host lacks of the code of packs: looked for until it is there.

At the start all installed packs are looked for. What turns out to be missing when it is to be run
is written into the worker's row by the end of that attempt (see `executions.finish`). With each
probe the worker looks again for what it lacks, so that it needs no restart to be fit for it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator.core import clock, fleet, packs
from orchestrator.core.models import Worker

if TYPE_CHECKING:
    from workers.host import Host

BELIEVED_SECONDS = 300.0
"""What an import did not find, and no look at its pack's folder explains, is tried again then.
Longer than executions wait for a worker that is away: they must not wait for this one for ever."""


class CodeWatch:
    """Finds out when what is missing, as the worker's row says, is no longer."""

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.is_lacking = False
        """Whether to look again soon. Set from any thread."""
        self._doubted_at: dict[str, float] = {}

    def survey(self) -> dict[str, str]:
        """What is missing of all installed packs, as a new life of the worker begins."""
        missing = packs.missing_code()
        self.is_lacking = bool(missing)
        return missing

    def look(self) -> None:
        """Look again for what the worker lacks, and write what has changed."""
        known = self._known()
        missing = packs.missing_code({_pack_of(name) for name in known}) if known else {}
        there = {
            name for name, why in known.items() if name not in missing and self._is_there(name, why)
        }
        life = {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}
        if there:
            fleet.have_code(**life, names=there, now=clock.now())
        if new := {name: why for name, why in missing.items() if name not in known}:
            fleet.lack_code(**life, missing=new, now=clock.now())
        self.is_lacking = bool(missing or known.keys() - there)

    def _known(self) -> dict[str, str]:
        rows = Worker.objects.filter(pk=self.agent.worker_id, incarnation=self.agent.incarnation)
        return rows.values_list("missing_code", flat=True).first() or {}

    def _is_there(self, name: str, why: str) -> bool:
        """Whether to take what no look misses for what is there."""
        if not why.startswith(packs.UNEXPLAINED):
            return True
        doubted_at = self._doubted_at.setdefault(name, time.monotonic())
        if time.monotonic() - doubted_at < BELIEVED_SECONDS:
            return False
        del self._doubted_at[name]
        return True


def _pack_of(name: str) -> str:
    """The pack of an action, or the pack itself."""
    return name.partition(".")[0]
