"""Which of the processes that share the tests runs which."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class WholeFiles(LoadScopeScheduling):
    """Each process takes whole files: what a file has set up for itself is set up once.

    `xdist_group` marks would say the same, but pytest 9.2 takes no notice of them
    (pytest-dev/pytest-xdist#1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


STORMS = frozenset(f"tests/chaos/test_{name}.py" for name in ("automation", "chaos", "gates"))
"""Each breaks installations while it loads them, and judges by the clock. Two at once would judge
the machine."""


def unit(nodeid: str) -> str:
    """The tests that one process runs: those of a file, and on servers apart; all storms."""
    file, _, test = nodeid.partition("::")
    if file in STORMS:
        return "storms"
    parameters = test.partition("[")[2].rstrip("]").split("-")
    return f"{file}, on servers" if "servers" in parameters else file
