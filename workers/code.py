"""Code of packs that this worker's host lacks: looked for until it is there.

At the start the worker looks for all installed packs. Code that turns out to be missing when it is
to run is noted in the worker's row at the end of that attempt (see `executions.finish`). At each
probe the worker looks again for the code that it lacks, so that it needs no restart.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator.core import clock, fleet, packs
from orchestrator.core.models import Worker

if TYPE_CHECKING:
    from workers.host import Host

BELIEVED_SECONDS = 300.0
"""Code that failed to import, although its pack's folder looks complete, is tried again after this
time. Longer than executions wait for an absent worker: they must not wait for this one for ever."""


class CodeWatch:
    """Finds out when code that is missing, by the worker's row, has appeared."""

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.is_lacking = False
        """True: look again soon. Set from any thread."""
        self._doubted_at: dict[str, float] = {}

    def survey(self) -> dict[str, str]:
        """Find the missing code of all installed packs, for a new life of the worker."""
        missing = packs.missing_code()
        self.is_lacking = bool(missing)
        return missing

    def look(self) -> None:
        """Look again for the code that the worker lacks, and record changes."""
        known = self._known()
        missing = packs.missing_code({_pack_of(name) for name in known}) if known else {}
        missing |= {name: why for name, why in known.items() if self._is_not_fetched(name)}
        present = {
            name for name, why in known.items() if name not in missing and self._is_there(name, why)
        }
        life = {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}
        if present:
            fleet.have_code(**life, names=present, now=clock.now())
        if new := {name: why for name, why in missing.items() if name not in known}:
            fleet.lack_code(**life, missing=new, now=clock.now())
        self.is_lacking = bool(missing or known.keys() - present)

    def _known(self) -> dict[str, str]:
        rows = Worker.objects.filter(pk=self.agent.worker_id, incarnation=self.agent.incarnation)
        return rows.values_list("missing_code", flat=True).first() or {}

    def _is_not_fetched(self, name: str) -> bool:
        """Return True for the pack as a release has it that is not on this host yet."""
        code, _, release = name.partition("@")
        return bool(release) and "." not in code and self.agent.releases.lacks(int(release))

    def _is_there(self, name: str, why: str) -> bool:
        """Return True if code that looks complete now counts as present."""
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
