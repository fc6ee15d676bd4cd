"""Keys for the tests of access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factories import make_action


@pytest.fixture
def ring_file(settings: Any, tmp_path: Path) -> Path:
    """The ring of an embedded installation, which is not made yet."""
    settings.DATA_DIR = tmp_path
    return tmp_path / "keyring"


@pytest.fixture
def billing(ring_file: Path) -> None:
    """A pack that may have keys."""
    make_action("billing.charge")
