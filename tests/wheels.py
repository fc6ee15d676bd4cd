"""A package that is nowhere else, for environments that are made without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make(folder: Path) -> Path:
    """A wheel in this folder, with the module `own` and its `VALUE`."""
    wheel = folder / "own_package-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("own.py", "VALUE = 'from the environment'\n")
        info = "own_package-1.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: own-package\nVersion: 1\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return wheel
