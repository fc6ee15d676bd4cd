"""Which of the processes that share the tests runs which."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xdist.scheduler import LoadScopeScheduling


class WholeFiles(LoadScopeScheduling):
    """Each process takes whole files: what a file has set up for itself is set up once.

    `xdist_group` marks would say the same, but pytest 9.2 takes no notice of them
    (pytest-dev/pytest-xdist#1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


STORMS = frozenset(f"tests/chaos/test_{name}.py" for name in ("automation", "chaos", "gates"))
"""Each breaks installations while it loads them, and judges by the clock: see `alone`."""


FIRST = "storms"

WAITING = ("tests/scenarios/", "tests/chaos/", "tests/browser/")
"""Tests of real processes: they wait for these more than they compute."""


def mixed(nodeids: Iterable[str]) -> dict[str, float]:
    """The place of each unit among all: tests that wait are spread evenly over those that compute,
    so that the processors have work all the time, and the units of each kind keep their order.
    First is what runs alone: nothing that others have set up idles beside it."""
    kinds: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for nodeid in nodeids:
        kinds[nodeid.startswith(WAITING)][unit(nodeid)] = None
    places = {
        name: (number + 0.5) / len(units)
        for units in kinds.values()
        for number, name in enumerate(units)
    }
    return places | {FIRST: 0.0} if FIRST in places else places


def twins(nodeids: Iterable[str]) -> set[str]:
    """Those that run on the embedded installation and on real servers too: the latter say more, and
    what is different below, the broker and SQLite, has tests of its own."""
    known = set(nodeids)
    return {
        nodeid
        for nodeid in known
        if (other := re.sub(r"(?<=[\[-])embedded(?=[\]-])", "servers", nodeid)) != nodeid
        and other in known
    }


def unit(nodeid: str) -> str:
    """The tests that one process runs: those of a file, and on servers apart; all storms, and all
    tests in a browser, which take a processor for themselves."""
    file, _, test = nodeid.partition("::")
    if file in STORMS or file.startswith("tests/browser/"):
        return FIRST
    parameters = test.partition("[")[2].rstrip("]").split("-")
    return f"{file}, on servers" if "servers" in parameters else file
