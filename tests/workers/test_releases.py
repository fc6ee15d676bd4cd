"""Code of two releases of one pack never mixes in a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core import isolation
from tests.workers.helpers import call
from workers import runtimes
from workers.isolated import functions
from workers.runtimes import warm_process

CODE = """
import os

def say(gate=None):
    while gate and not os.path.exists(gate):
        pass
    from goods import later
    return {"version": VERSION, "later": later.VERSION, "pid": os.getpid()}

VERSION = %d
"""


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[list[str]]:
    """Two releases of a pack, as they are on a worker's disk."""
    paths = []
    for version in (1, 2):
        folder = tmp_path / f"digest{version}" / "goods"
        folder.mkdir(parents=True)
        (folder / "work.py").write_text(CODE % version)
        (folder / "later.py").write_text(f"VERSION = {version}\n")
        paths.append(str(folder))
    yield paths
    warm_process.end_all()


def say(path: str, **values: Any) -> dict[str, Any]:
    outcome = runtimes.run(call("python", "goods.work:say", pack_path=path, **values))
    assert outcome.event == "complete", outcome
    result = outcome.result
    return result.get("result", result)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "how", [{}, {"isolation": isolation.TRUSTED}, {"options": {"process": True}}],
    ids=["warm", "trusted", "own process"],
)  # fmt: skip
def test_each_call_runs_its_own_release_in_turns(releases, how):
    for path, version in [*zip(releases, (1, 2), strict=True)] * 3:
        said = say(path, **how)
        assert (said["version"], said["later"]) == (version, version)


def test_each_release_has_a_warm_process_that_is_used_again(releases):
    pids = [[say(path)["pid"] for path in releases] for _ in range(2)]
    assert pids[0] == pids[1]
    assert len(set(pids[0])) == 2


def test_what_a_function_imports_while_it_runs_is_of_its_release(releases, tmp_path):
    """Two at once, in one worker: the first one imports after the second one has ended."""
    gate = tmp_path / "gate"
    said: list[dict[str, Any]] = []
    first = threading.Thread(
        target=lambda: said.append(say(releases[0], parameters={"gate": str(gate)}))
    )
    first.start()
    assert say(releases[1])["later"] == 2
    gate.touch()
    first.join()
    assert (said[0]["version"], said[0]["later"]) == (1, 1)


def test_a_process_forgets_the_modules_of_the_other_release(
    releases: list[str], instead: Callable[..., None]
) -> None:
    for path, version in zip(releases, (1, 2), strict=True):
        functions.make_importable(path)
        assert functions.load("goods.work:say")()["later"] == version
