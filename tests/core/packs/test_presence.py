"""What a host has of the packs that are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core import packs
from orchestrator.core.models import Pack
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    """A pack, installed, whose folder is there."""
    folder = tmp_path / "maps"
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text('name: maps\nversion: "1"\n')
    (folder / "code.py").write_text("def draw():\n    pass\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.js").write_text("")
    for name, lines in {
        "draw": "runtime: python\nentry_point: maps.code:draw",
        "apart": "runtime: python\nentry_point: maps.code:draw\noptions: {process: true}",
        "script": "runtime: shell\nentry_point: [./run.sh]",
        "node": "runtime: node\nentry_point: [run.js]",
        "command": "runtime: shell\nentry_point: [ls]",
        "elsewhere": "runtime: python\nentry_point: json.tool:main",
        "ask": "runtime: http\nentry_point: http://127.0.0.1",
    }.items():
        (folder / "actions" / f"{name}.yaml").write_text(f"name: {name}\n{lines}\n")
    packs.install(packs.load(folder), now=NOW)
    return folder


def test_host_that_has_everything_lacks_nothing(maps: Path) -> None:
    assert packs.missing_code() == {}


def test_missing_folder_is_a_missing_pack(maps: Path) -> None:
    maps.rename(maps.with_name("away"))
    assert packs.missing_code() == {"maps": f"no such folder: {maps}"}
    assert packs.missing_code(["maps"]) == packs.missing_code()
    assert packs.missing_code(["core"]) == {}
    maps.write_text("")
    assert packs.missing_code() == {"maps": f"not a folder: {maps}"}


def test_missing_files_and_functions_are_missing_actions(maps: Path) -> None:
    for name in ("code.py", "run.sh", "run.js"):
        (maps / name).unlink()
    assert packs.missing_code() == {
        "maps.apart": f"no such file: {maps}/code.py",
        "maps.draw": f"no such file: {maps}/code.py",
        "maps.node": f"no such file: {maps}/run.js",
        "maps.script": f"no such file: {maps}/run.sh",
    }
    (maps / "code.py").write_text("def other():\n    pass\n")
    assert packs.missing_code()["maps.draw"] == f"{maps}/code.py has no function 'draw'"
    (maps / "code.py").write_text("def draw(:\n")
    assert "maps.draw" not in packs.missing_code(), "it is there, and whoever runs it says more"


def test_folder_may_be_a_link_to_another_name(maps: Path) -> None:
    maps.rename(maps.with_name("maps-1.2"))
    maps.symlink_to(maps.with_name("maps-1.2"))
    assert packs.missing_code() == {}


def test_disabled_actions_and_packs_that_need_no_folder_are_not_looked_for(maps: Path) -> None:
    pack = Pack.objects.get()
    pack.actions.exclude(ref="maps.ask").update(enabled=False)
    maps.rename(maps.with_name("away"))
    assert packs.missing_code() == {}
