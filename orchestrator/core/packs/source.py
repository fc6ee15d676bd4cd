"""YAML files as plain JSON values with their line numbers.

Ambiguous or surprising YAML is refused: keys given twice, dates, tags, merge keys, values that JSON
cannot hold.
"""

from __future__ import annotations

import math
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Where = tuple[str | int, ...]
"""The path to a value: keys and positions, from the top of the file."""

BYTE_LIMIT = 1_048_576
"""Largest file that is read."""

NODE_LIMIT = 20_000
TEXT_LIMIT = 1_048_576
"""Aliases can make a small file expand to a huge one: most values of a file, and most characters of
its keys and values together."""

DIGIT_LIMIT = 300
"""Longest number. A double ends at 309 digits, and a longer integer is no number of anything."""

NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True)
class SourceProblem:
    """One problem with a pack, and its place. Lines and columns count from 1; line 0 is the
    file."""

    file: str
    line: int
    column: int
    message: str
    where: Where = field(default=(), compare=False)
    """The path to it, for values that did not come from a file."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


@dataclass
class Source:
    """One file: its value, the place of everything in it, and the problems noted so far."""

    file: Path
    value: Any = None
    problems: list[SourceProblem] = field(default_factory=list)
    _places: dict[Where, yaml.Mark] = field(default_factory=dict)
    _keys: dict[Where, yaml.Mark] = field(default_factory=dict)

    @classmethod
    def at_line(cls, file: Path, line: int, value: Any) -> Source:
        """A value that stands at one line of a file that is no YAML."""
        mark = yaml.Mark(str(file), 0, max(line - 1, 0), 0, None, 0)
        return cls(file, value, _places={(): mark, ("name",): mark})

    def at(self, where: Where, default: Any = None) -> Any:
        """Return the value there, or the default if there is none."""
        value = self.value
        for step in where:
            try:
                value = value[step]
            except (LookupError, TypeError):
                return default
        return value

    def problem(self, where: Where, message: str, *, at_key: bool = False) -> None:
        """Note a problem with the value (or the key) there, or else with the nearest parent."""
        self.problems.append(self.place(where, message, at_key=at_key))

    def place(self, where: Where, message: str, *, at_key: bool = False) -> SourceProblem:
        """A problem with the value (or the key) there, or else with the nearest parent."""
        places = self._keys if at_key and where in self._keys else self._places
        nearest = where
        while nearest and nearest not in places:
            nearest = nearest[:-1]
        return self._placed(places.get(nearest), message, where)

    def line(self, where: Where) -> int:
        mark = self._places.get(where)
        return mark.line + 1 if mark else 0

    def _note(self, mark: yaml.Mark | None, message: str) -> None:
        self.problems.append(self._placed(mark, message))

    def _placed(self, mark: yaml.Mark | None, message: str, where: Where = ()) -> SourceProblem:
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        return SourceProblem(str(self.file), line, column, message, where)


def read(file: Path, *, folder: Path | None = None) -> Source:
    """Read a file and note its problems as YAML; its value is None if nothing is usable.

    With `folder`, a symbolic link must lead to a file in it: problems quote what a file says.
    """
    source = Source(file)
    try:
        text = _bytes_of(file, folder).decode()
    except _NotReadable as error:
        source._note(None, str(error))
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


class _NotReadable(Exception):
    """The file is none, or none of these files."""


def _bytes_of(file: Path, folder: Path | None) -> bytes:
    """The content of a regular file. Raises _NotReadable."""
    try:
        path = file.resolve(strict=True)
        if folder is not None and not path.is_relative_to(folder.resolve()):
            raise _NotReadable("expected a file in the pack's folder, found a link that leaves it")
        # without waiting: a FIFO opens only when somebody writes to it
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except RuntimeError:  # Python 3.11 and 3.12 say so
        raise _NotReadable("cannot be read: a loop of symbolic links") from None
    except OSError as error:
        raise _NotReadable(f"cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _NotReadable("expected a file, found a folder, a device or a pipe")
        try:
            content = opened.read(BYTE_LIMIT + 1)
        except OSError as error:
            raise _NotReadable(f"cannot be read: {error.strerror}") from None
    if len(content) > BYTE_LIMIT:
        raise _NotReadable(f"expected at most {BYTE_LIMIT:,} bytes, found more")
    return content


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
        self._characters = 0

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
        self._weigh(node)
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

    def _weigh(self, node: yaml.Node) -> None:
        """Count the characters of a text, each time that an alias repeats it."""
        if not isinstance(node, yaml.ScalarNode):
            return
        self._characters += len(node.value)
        if self._characters > TEXT_LIMIT:
            raise yaml.MarkedYAMLError(
                problem=f"more than {TEXT_LIMIT:,} characters, counting each alias as its text",
                problem_mark=node.start_mark,
            )

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            mark = key_node.start_mark
            if not isinstance(key_node, yaml.ScalarNode):
                self._source._note(mark, "expected a key, found a list or mapping in its place")
                continue
            self._weigh(key_node)
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
        if node.tag in NUMBER_TAGS and len(node.value) > DIGIT_LIMIT:
            found = f"{node.value[:20]}… of {len(node.value):,} characters"
            self._source._note(
                node.start_mark, f"expected a number of at most {DIGIT_LIMIT} digits, found {found}"
            )
            return None
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
            node.start_mark, f"expected text or a number, found {node.value:.80}: put it in quotes"
        )
        return None
