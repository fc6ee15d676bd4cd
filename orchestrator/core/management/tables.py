"""Tables that use the width there is and break no word, so that an id can be pasted from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.text import Text

GAP = 2
INDENT = 4
LEAST_PROSE = 24
"""The fewest characters that prose is wrapped at, beside other columns."""


@dataclass(frozen=True)
class Column:
    """A column: `>` before its heading aligns it to the right, `*` lets its words wrap."""

    heading: str
    is_right: bool
    is_prose: bool

    @classmethod
    def of(cls, spelled: str) -> Column:
        return cls(spelled.lstrip(">*"), spelled.startswith(">"), spelled.startswith("*"))


class Table:
    """Rows below headings. Columns for which the width is too small stand below their row, each
    with its heading, so the columns that name a row come first."""

    def __init__(self, *headings: str) -> None:
        self.columns = [Column.of(heading) for heading in headings]
        self.rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row; cells that are left out at its end are empty."""
        row = [cell if isinstance(cell, Text) else Text(cell) for cell in cells]
        self.rows.append(row + [Text("")] * (len(self.columns) - len(row)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield its lines."""
        widths = self._widths(options.max_width)
        beside, below = self.columns[: len(widths)], self.columns[len(widths) :]
        headings = [Text(column.heading, style="bold") for column in beside]
        yield from _lines(console, beside, headings, widths)
        yield Text((" " * GAP).join("─" * width for width in widths), style="bright_black")
        for row in self.rows:
            yield from _lines(console, beside, row[: len(beside)], widths)
            yield from _lines_below(console, below, row[len(beside) :], options.max_width)

    def _widths(self, width: int) -> list[int]:
        """The widths of the columns that fit beside each other, at least one."""
        natural = [self._longest(n, column) for n, column in enumerate(self.columns)]
        widths = [self._least(n, column, natural[n]) for n, column in enumerate(self.columns)]
        while len(widths) > 1 and _sum(widths) > width:
            widths.pop()
        spare = width - _sum(widths)
        for n, least in enumerate(widths):
            given = min(natural[n] - least, max(0, spare))
            widths[n] += given
            spare -= given
        return widths

    def _longest(self, n: int, column: Column) -> int:
        lines = (line.cell_len for row in self.rows for line in row[n].split("\n"))
        return max([len(column.heading), *lines])

    def _least(self, n: int, column: Column, natural: int) -> int:
        if not column.is_prose:
            return natural
        words = (Text(word).cell_len for row in self.rows for word in row[n].plain.split())
        return min(natural, max([LEAST_PROSE, *words]))


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _lines(
    console: Console, columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int]
) -> Iterator[Text]:
    """One row: as many lines as its highest cell has."""
    wrapped = [cell.wrap(console, width) for cell, width in zip(cells, widths, strict=True)]
    for n in range(max(map(len, wrapped))):
        line = Text()
        for column, width, cell in zip(columns, widths, wrapped, strict=True):
            part = cell[n] if n < len(cell) else Text("")
            part.rstrip()
            part.align("right" if column.is_right else "left", width)
            line += part + Text(" " * GAP)
        line.rstrip()
        yield line


def _lines_below(
    console: Console, columns: Sequence[Column], cells: Sequence[Text], width: int
) -> Iterator[Text]:
    """The cells that have no place beside the others, each after its heading."""
    room = max(1, width - INDENT)
    lines: list[Text] = []
    for column, cell in zip(columns, cells, strict=True):
        if not cell.plain.strip():
            continue
        item = Text.assemble((f"{column.heading} ", "bright_black"), Text(" ").join(cell.split()))
        if lines and lines[-1].cell_len + GAP + item.cell_len <= room:
            lines[-1] += Text(" " * GAP) + item
        else:
            lines.append(item)
    for line in lines:
        for part in line.wrap(console, room):
            part.rstrip()
            yield Text(" " * INDENT) + part
