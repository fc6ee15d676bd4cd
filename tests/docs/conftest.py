"""One embedded system for all pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.system import System


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    directory: Path = tmp_path_factory.mktemp("docs")
    system = System(directory)
    try:
        system.start()
        yield system
    finally:
        system.close()
