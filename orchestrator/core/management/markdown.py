"""Write Markdown: a generated page, a table, a diagram."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `manage.py docs generate`; change the code that it describes. -->"


def page_of(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", GENERATED, *(part for part in parts if part)]) + "\n"


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def mermaid_of(lines: Iterable[str]) -> str:
    return "\n".join(["```mermaid", *lines, "```"])
