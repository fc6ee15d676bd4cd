"""A YAML file as plain JSON values that remember their lines.

YAML that means something else than it says is refused rather than guessed at: keys given twice,
dates, tags, merge keys, values that no JSON can hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Where = tuple[str | int, ...]
"""The way to a value: keys and positions, from the top of the file."""

NODE_LIMIT = 20_000
"""Aliases can make a small file mean a huge one."""


PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True)
class SourceProblem:
    """What is wrong with a pack, and where. Lines and columns count from 1; line 0 is the file."""

    file: str
    line: int
    column: int
    message: str
    where: Where = field(default=(), compare=False)
    """The way to it, for what did not come from a file."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


@dataclass
class Source:
    """One file: its value, where everything is in it, and what is wrong with it so far."""

    file: Path
    value: Any = None
    problems: list[SourceProblem] = field(default_factory=list)
    _places: dict[Where, yaml.Mark] = field(default_factory=dict)
    _keys: dict[Where, yaml.Mark] = field(default_factory=dict)

    def at(self, where: Where, default: Any = None) -> Any:
        """The value there, or the default where there is none."""
        value = self.value
        for step in where:
            try:
                value = value[step]
            except (LookupError, TypeError):
                return default
        return value

    def problem(self, where: Where, message: str, *, at_key: bool = False) -> None:
        """Note a problem with the value (or the key) there, or with the nearest thing above."""
        places = self._keys if at_key and where in self._keys else self._places
        nearest = where
        while nearest and nearest not in places:
            nearest = nearest[:-1]
        self._note(places.get(nearest), message, where)

    def line(self, where: Where) -> int:
        mark = self._places.get(where)
        return mark.line + 1 if mark else 0

    def _note(self, mark: yaml.Mark | None, message: str, where: Where = ()) -> None:
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        self.problems.append(SourceProblem(str(self.file), line, column, message, where))


def read(file: Path) -> Source:
    """The file with all that is wrong with it as YAML; its value is None if nothing is usable."""
    source = Source(file)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        source._note(None, f"cannot be read: {error.strerror}")
        return source
    except UnicodeDecodeError as error:
        source._note(None, f"expected UTF-8, found byte 0x{error.object[error.start]:02x}")
        return source
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            source._note(None, "expected a mapping, found an empty file")
        else:
            source.value = _Reader(source, loader).value(node, ())
    except yaml.MarkedYAMLError as error:
        source._note(error.problem_mark or error.context_mark, f"not YAML: {_reason(error)}")
    except yaml.reader.ReaderError as error:
        source._note(None, f"not YAML: character U+{_code(error.character):04X} is not allowed")
    except RecursionError:
        source._note(None, "nested too deeply")
    finally:
        if loader is not None:
            loader.dispose()
    return source


def _reason(error: yaml.MarkedYAMLError) -> str:
    return " ".join(part for part in (error.context, error.problem) if part)


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(character)


class _Reader:
    """Turns nodes into values, noting the place of each."""

    def __init__(self, source: Source, loader: yaml.SafeLoader) -> None:
        self._source = source
        self._loader = loader
        self._open: set[int] = set()
        self._count = 0

    def value(self, node: yaml.Node, where: Where) -> Any:
        self._source._places[where] = node.start_mark
        self._count += 1
        if id(node) in self._open:
            raise yaml.MarkedYAMLError(
                problem="an alias refers to what it is part of", problem_mark=node.start_mark
            )
        if self._count > NODE_LIMIT:
            raise yaml.MarkedYAMLError(
                problem=f"more than {NODE_LIMIT:,} values", problem_mark=node.start_mark
            )
        self._open.add(id(node))
        try:
            if not isinstance(node, yaml.ScalarNode) and node.tag not in PLAIN_TAGS:
                self._source._note(node.start_mark, f"expected no tag, found {node.tag}")
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, where)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*where, i)) for i, item in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            mark = key_node.start_mark
            if not isinstance(key_node, yaml.ScalarNode):
                self._source._note(mark, "expected a key, found a list or mapping in its place")
                continue
            # as written: `on` and `1` are names here, whatever YAML 1.1 makes of them
            key = str(key_node.value)
            if key_node.tag == "tag:yaml.org,2002:merge":
                self._source._note(mark, "expected a key, found a merge key '<<', not supported")
                continue
            if key in mapping:
                first = self._source._keys[(*where, key)].line + 1
                self._source._note(mark, f"{key}: given twice, the first time in line {first}")
                continue
            self._source._keys[(*where, key)] = mark
            mapping[key] = self.value(value_node, (*where, key))
        return mapping

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            value = self._loader.construct_object(node)
        except ValueError:
            value = node
        if isinstance(value, float) and not math.isfinite(value):
            self._source._note(node.start_mark, f"expected a finite number, found {node.value}")
            return None
        if value is None or isinstance(value, str | bool | int | float):
            return value
        self._source._note(
            node.start_mark, f"expected text or a number, found {node.value}: put it in quotes"
        )
        return None
