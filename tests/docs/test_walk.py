"""The pages, walked by a newcomer: every command runs, and prints what is shown."""

from __future__ import annotations

import itertools
import shutil

import pytest

from tests.docs import pages
from tests.docs.pages import OUTPUT
from tests.docs.system import System
from tests.docs.walking import PAGE_SECONDS, agrees, walk

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(PAGE_SECONDS + 120)]

WALKED = [page.name for page in pages.hand_written() if any(block.is_run for block in page.blocks)]
SLOW = ("docs/api.md", "docs/dlq.md")
TOOLS = ("bash", "curl", "jq")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in WALKED],
)
def test_newcomer_who_types_what_the_page_says_gets_what_it_shows(
    name: str, system: System
) -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    page = pages.page(name)
    walked = walk(page, system)
    line, printed = walked.last()
    assert walked.status == 0, f"{name}:{line}: exit status {walked.status}\n{printed}"
    for block, following in itertools.pairwise(page.blocks):
        if following.language == OUTPUT:
            printed = walked.printed[block.line]
            assert agrees(following.text, printed), f"{name}:{following.line}: it prints\n{printed}"


@pytest.mark.parametrize(
    ("expected", "printed", "does"),
    [
        ("a  b\n", "a b\r\n".replace("\r", ""), True),
        ("a b", "a c", False),
        ("a b", "a b\nc", False),
        ("a ... c\n...\nd", "a b c\n1\n2\nd", True),
        ("...\nd", "d", True),
        ("ran 2 s", "ran 310 ms", True),
        ("ran 2 s", "ran long", False),
        (
            "01a2085b-12f2-73d6-8aa4-5a26a97c3d55 at 11-23 08:58:51",
            "01b2085b-12f2-73d6-8aa4-5a26a97c3d50 at 12-24 18:00:00",
            True,
        ),
        ("01a2085b-12f2", "none", False),
    ],
)
def test_output_agrees_if_it_differs_in_ids_times_and_dots_alone(
    expected: str, printed: str, does: bool
) -> None:
    assert agrees(expected, printed) is does
