"""The mutants still fit the code: a line that was rewritten takes its mutant along."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.chaos import mutants, report
from tests.chaos.mutations import Mutant
from tests.scenarios.installation import REPOSITORY


@pytest.mark.parametrize("mutant", mutants.ALL, ids=[mutant.name for mutant in mutants.ALL])
def test_mutant_finds_its_line_and_leaves_python(mutant: Mutant) -> None:
    sound = (REPOSITORY / mutant.file).read_text()

    broken = mutants.broken(mutant, sound)

    assert broken != sound
    ast.parse(broken)
    for stage in mutant.stages:
        for test in stage:
            assert (REPOSITORY / test.partition("::")[0]).exists(), test


def test_report_replaces_what_stands_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- /x -->\nafter\n")

    report.write(page, "x", "new")

    assert page.read_text() == "before\n<!-- x -->\n\nnew\n\n<!-- /x -->\nafter\n"
    with pytest.raises(ValueError, match="no place for y"):
        report.write(page, "y", "new")
