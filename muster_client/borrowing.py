"""Packages that describe type hints, for an environment that has none of its own.

The environment of a pack has what its `requirements.txt` names. What Muster needs besides, to make
a schema of a function's hints, is found where Muster has it, after all that the environment has;
nothing else of Muster's packages can be imported there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

NEEDED = frozenset(
    {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
)


class Borrowed(MetaPathFinder):
    """Finds the needed packages, and no others, in these folders."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = list(folders)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if path is not None or name not in NEEDED:
            return None
        return PathFinder.find_spec(name, self.folders)


def borrow(folders: Sequence[str]) -> None:
    """Let the needed packages be found in these folders, after everything else."""
    sys.meta_path.append(Borrowed(folders))
