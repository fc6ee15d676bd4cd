"""Tables use the width there is, and whoever pastes a word of one pastes all of it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from orchestrator.core.management.tables import Table

ID = "0189aaaa-0000-7000-8000-000000000001"
MESSAGE = "could not open /dev/printer7 of the warehouse in the north"


def drawn(table: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.fixture
def table() -> Table:
    made = Table("id", "action", ">ran", "*message")
    made.add_row(ID, "core.shell", "12 s", MESSAGE)
    made.add_row(ID, Text("core.echo", style="red"), "", "")
    return made


def test_wide_terminal_shows_a_row_in_one_line(table: Table) -> None:
    headings, _, first, second = drawn(table, 220)
    assert headings.split() == ["id", "action", "ran", "message"]
    assert first == f"{ID}  core.shell  12 s  {MESSAGE}"
    assert second == f"{ID}  core.echo"


def test_prose_wraps_between_its_words_before_anything_else_gives_way(table: Table) -> None:
    lines = drawn(table, 100)
    assert lines[2].startswith(f"{ID}  core.shell  12 s  could not open")
    assert lines[3].strip() in MESSAGE
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("width", [36, 40, 50, 60, 72, 80, 100, 160])
def test_no_word_is_broken_at_any_width_that_it_fits(table: Table, width: int) -> None:
    lines = drawn(table, width)
    words = [word for line in lines for word in line.split()]
    assert max(map(len, lines)) <= width
    assert words.count(ID) == 2
    assert [word for word in words if word in MESSAGE.split()] == MESSAGE.split()


def test_what_has_no_place_beside_its_row_stands_below_it_with_its_heading(table: Table) -> None:
    _, _, first, below, *_, last = drawn(table, 52)
    assert first == f"{ID}  core.shell"
    assert below == "    ran 12 s"
    assert last == f"{ID}  core.echo"


def test_lines_of_a_cell_stay_lines_beside_it() -> None:
    table = Table("name", "*values")
    table.add_row("a", "x=1\ny=2")
    assert drawn(table, 80)[2:] == ["a     x=1", "      y=2"]


def test_wide_characters_count_as_two() -> None:
    table = Table("name", "state")
    table.add_row("倉庫", "up")
    table.add_row("abcd", "up")
    assert drawn(table, 80)[2:] == ["倉庫  up", "abcd  up"]
