"""An authority for certificates of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers
from tests.security.certificates import Authority


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    try:
        authority = Authority()
    except servers.MissingBinary as missing:
        pytest.skip(str(missing))
    yield authority
    authority.close()
