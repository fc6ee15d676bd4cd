"""Runtimes are found by name, offered where they can be used, and added by an entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator.core import packs
from orchestrator.core.packs import runtimes as known
from tests.workers.helpers import call
from workers import runtimes
from workers.runtimes import registry

CODE = """
from workers.runtimes import Call, Outcome, completed

in_process = False

def why_not() -> str:
    return {why_not!r}

def run(call: Call) -> Outcome:
    if call.parameters.get("raise"):
        raise RuntimeError("it broke")
    return completed({{"said": call.parameters.get("say"), "options": call.options}})
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch):
    """Install a tiny distribution that adds the runtime `parrot`."""

    def install(*, name: str = "parrot", why_not: str = "", module: str = "parrot_runtime") -> None:
        (tmp_path / "parrot_runtime.py").write_text(CODE.format(why_not=why_not))
        info = tmp_path / "parrot-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{packs.RUNTIMES_GROUP}]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    registry.load.cache_clear()
    sys.modules.pop("parrot_runtime", None)


def test_the_keys_of_every_built_in_runtime_are_known_where_packs_are_checked():
    assert list(registry.BUILT_IN) == list(known.KINDS)


def test_every_built_in_runtime_keeps_the_protocol():
    for name in registry.BUILT_IN:
        runtime = registry.load(name)
        assert isinstance(runtime.why_not(), str)
        assert callable(runtime.run)


def test_what_is_offered_is_what_gives_no_reason_against_it():
    survey = runtimes.survey()
    assert runtimes.offered() == [name for name, why_not in survey.items() if not why_not]
    assert {"python", "http"} <= set(runtimes.offered())


def test_an_entry_point_adds_a_runtime(distribution, tmp_path):
    distribution()
    assert runtimes.survey()["parrot"] == ""
    assert "parrot" in runtimes.offered()
    assert not runtimes.in_process("parrot", {})
    outcome = runtimes.run(call("parrot", "x", parameters={"say": "hi"}, options={"loud": True}))
    assert outcome.result == {"said": "hi", "options": {"loud": True}}

    pack = tmp_path / "birds"
    (pack / "actions").mkdir(parents=True)
    (pack / "pack.yaml").write_text('name: birds\nversion: "1"\n')
    (pack / "actions" / "say.yaml").write_text(
        "name: say\nruntime: parrot\nentry_point: x\noptions: {loud: true}\n"
    )
    assert packs.load(pack).actions[0].runtime_options == {"loud": True}


def test_what_an_added_runtime_raises_fails_the_execution_and_blames_the_worker(distribution):
    distribution()
    outcome = runtimes.run(call("parrot", "x", parameters={"raise": True}))
    assert (outcome.event, outcome.result["failed_by"]) == ("fail", "worker")
    assert outcome.result["message"] == "Runtime parrot: RuntimeError('it broke')."


def test_why_a_runtime_is_not_offered_is_told(distribution):
    distribution(why_not="it has lost its voice")
    assert runtimes.survey()["parrot"] == "it has lost its voice"
    assert "parrot" not in runtimes.offered()


def test_a_runtime_that_cannot_be_loaded_does_not_stop_the_others(distribution):
    distribution(module="parrot_that_is_no_more")
    assert runtimes.survey()["parrot"].startswith("it cannot be loaded: ModuleNotFoundError")
    assert "python" in runtimes.offered()


def test_an_entry_point_cannot_replace_a_built_in_runtime(distribution):
    distribution(name="shell")
    assert registry.load("shell").__name__ == "workers.runtimes.shell"  # type: ignore[attr-defined]
    assert registry.names().count("shell") == 1
