"""The client as a distribution of its own: `make client`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "muster_client", folder / "muster_client", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, folder / "muster_client"], check=True)
    (made,) = folder.glob("*.whl")
    return made


def test_wheel_has_the_client_needs_httpx_alone_and_has_the_version_of_muster(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        lines = file.read(metadata).decode().splitlines()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"Version: {version}" in lines
    assert [line for line in lines if line.startswith("Requires-Dist")] == [
        "Requires-Dist: httpx<1,>=0.28"
    ]
    modules = {name for name in names if name.startswith("muster_client/")}
    of_folder = (ROOT / "muster_client").glob("*.py")
    assert modules == {f"muster_client/{file.name}" for file in of_folder} | {
        "muster_client/py.typed"
    }


def test_client_of_the_wheel_is_imported_where_nothing_of_muster_is(
    wheel: Path, tmp_path: Path
) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import muster_client; from muster_client import AsyncMuster, Muster, action\n"
        "print(muster_client.__file__, 'orchestrator' in sys.modules)"
    )
    argv = [sys.executable, "-I", "-c", code]
    said = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.split() == [f"{wheel}/muster_client/__init__.py", "False"]
