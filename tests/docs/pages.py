"""README.md and the pages of docs/, as their readers meet them: headings, prose, blocks of code.

A block says in its fence what it is, and the rendered page does not show the rest of that line:

    ```sh                         commands: they run, in order, where the page's earlier ones ran
    ```sh fails                   commands of which the last is refused
    ```sh not run: REASON         commands that cannot run beside the tests, and why
    ```output                     what the block before it prints
    ```python shop/tasks.py       a file that the blocks after it find there
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from orchestrator.core.management import markdown

REPOSITORY = Path(__file__).resolve().parents[2]
SHELL = "sh"
OUTPUT = "output"
FAILS = "fails"
NOT_RUN = "not run: "
FAILURES = "When it fails"
"""The heading of a page's last section."""


@dataclass(frozen=True)
class Block:
    """A piece of code in a page, and what its fence says of it."""

    line: int
    language: str
    words: str
    """What follows the language."""
    text: str

    @property
    def is_run(self) -> bool:
        return self.language == SHELL and self.words in ("", FAILS)

    @property
    def path(self) -> str:
        """The file that it is, if it is one."""
        return "" if self.language in (SHELL, OUTPUT) else self.words


@dataclass(frozen=True)
class Page:
    name: str
    """Its path in the repository."""
    tokens: Sequence[Token]

    @property
    def blocks(self) -> list[Block]:
        return [_block(token) for token in self.tokens if token.type in ("fence", "code_block")]

    @property
    def is_generated(self) -> bool:
        return any(token.content.strip() == markdown.GENERATED for token in self.tokens)

    def headings(self, level: int) -> list[str]:
        following = zip(self.tokens, self.tokens[1:], strict=False)
        return [
            text.content for token, text in following if token.tag == f"h{level}" and text.content
        ]

    def inline_code(self) -> Iterator[tuple[int, str]]:
        """Line and text of what stands in backquotes."""
        for token in self.tokens:
            for child in token.children or ():
                if child.type == "code_inline":
                    yield token.map[0] + 1 if token.map else 0, child.content


def page(name: str) -> Page:
    return parsed(name, (REPOSITORY / name).read_text(encoding="utf-8"))


def parsed(name: str, text: str) -> Page:
    return Page(name, MarkdownIt().enable("table").parse(text))


def names() -> list[str]:
    """README.md and docs/*.md: no decisions, no generated reference."""
    return [
        "README.md",
        *sorted(f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md")),
    ]


def hand_written() -> list[Page]:
    return [found for found in map(page, names()) if not found.is_generated]


def _block(token: Token) -> Block:
    language, _, words = token.info.strip().partition(" ")
    assert token.map
    return Block(token.map[0] + 1, language, words.strip(), token.content)


# --- commands in a text ---------------------------------------------------------------------------

MANAGE = re.compile(r"^(?:\./)?manage\.py (?P<arguments>\w.*)")


def command_in(text: str) -> str:
    """The arguments of a `manage.py ...`, without comment; empty if it is none."""
    found = MANAGE.match(text.strip())
    return re.split(r"\s+#|\s*[|<>&;]", found["arguments"])[0].strip() if found else ""
