"""A pack to write, file by file, and the one that comes with Muster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings

from orchestrator.core import packs

CORE = Path(settings.BASE_DIR) / "packs" / "core"

PING = """\
name: ping
runtime: shell
entry_point: [ping, "{host}"]
parameters:
  properties:
    host: {type: string}
  required: [host]
"""


class Folder:
    """A pack's folder to write into; its problems come back relative to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("pack.yaml", 'name: net\nversion: "1.0"\n')

    def write(self, name: str, text: str | bytes) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def action(self, name: str = "ping", **values: Any) -> None:
        known = yaml.safe_load(PING) | {"name": name} | values
        self.write(f"actions/{name}.yaml", yaml.safe_dump(known))

    def load(self) -> packs.PackDefinition:
        return packs.load(self.path)

    def problems(self) -> list[str]:
        with pytest.raises(packs.InvalidPack) as error:
            self.load()
        return [str(problem).removeprefix(f"{self.path}/") for problem in error.value.problems]
