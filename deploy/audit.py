"""`make audit OSV=FILE`: does each pinned package have its hashes, and a known vulnerability?

Works without a network: FILE is the export of the OSV database (osv.dev) for the ecosystem PyPI,
the zip file or a folder of its JSON files, downloaded by whoever runs this. An old export knows
nothing of what was found since, so it is refused some weeks after its newest entry.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
FILES = (
    "requirements.txt",
    "requirements-otel.txt",
    "requirements-dev.txt",
    "requirements-bench.txt",
)
VALID_FOR = timedelta(days=30)

PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^\s;\\]+)")


class Unusable(Exception):
    """The database cannot be read, or says nothing of today."""


@dataclass(frozen=True)
class Pin:
    """A pinned package, and where."""

    name: str
    version: Version
    file: str
    line: int
    hashes: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}=={self.version}"


def pins(path: Path) -> Iterator[Pin]:
    """Read the pins of a requirements file, as `make lock` writes it."""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if match := PIN.match(line):
            hashes = 0
            for following in lines[number - 1 :]:
                hashes += following.count("--hash=sha256:")
                if not following.endswith("\\"):
                    break
            name = canonicalize_name(match["name"])
            yield Pin(name, Version(match["version"]), path.name, number, hashes)


def without_hash(pinned: Iterable[Pin]) -> list[str]:
    return [f"{pin} has no hash; run: make lock" for pin in pinned if not pin.hashes]


def installed_otherwise(pinned: Iterable[Pin]) -> list[str]:
    """Packages of this environment that have another version than the pinned one."""
    found: dict[str, str] = {
        canonicalize_name(each.name): each.version for each in metadata.distributions()
    }
    return sorted(
        {
            f"{pin} is pinned, {found[pin.name]} is installed"
            for pin in pinned
            if pin.name in found and Version(found[pin.name]) != pin.version
        }
    )


# --- the database --------------------------------------------------------------------------------


def advisories(path: Path) -> Iterator[dict[str, Any]]:
    """Read all entries of an export. Raises Unusable."""
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.json")):
                yield json.loads(file.read_bytes())
        else:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".json"):
                        yield json.loads(archive.read(name))
    except (OSError, zipfile.BadZipFile, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Unusable(f"{path} cannot be read: {error}") from None


def affects(advisory: Mapping[str, Any], pin: Pin) -> bool:
    """Return True if an entry of the database is about this version."""
    return any(_is_in(affected, pin.version) for affected in _about(advisory, pin.name))


def fixed_in(advisory: Mapping[str, Any], name: str) -> list[str]:
    """The versions from which on the package is not affected."""
    return [
        str(event["fixed"])
        for affected in _about(advisory, name)
        for versions in affected.get("ranges", ())
        for event in versions.get("events", ())
        if "fixed" in event and versions.get("type") == "ECOSYSTEM"
    ]


def _about(advisory: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        if (
            package.get("ecosystem") == "PyPI"
            and canonicalize_name(package.get("name", "")) == name
        ):
            yield affected


def _is_in(affected: Mapping[str, Any], version: Version) -> bool:
    listed = {parsed for text in affected.get("versions", ()) if (parsed := _parsed(text))}
    return version in listed or any(
        _is_in_range(versions.get("events", ()), version)
        for versions in affected.get("ranges", ())
        if versions.get("type") == "ECOSYSTEM"
    )


def _is_in_range(events: Iterable[Mapping[str, str]], version: Version) -> bool:
    """Evaluate the events of a range in the order of their versions, as OSV's schema says."""
    ordered = sorted(
        (parsed, kind)
        for event in events
        for kind, text in event.items()
        if (parsed := _parsed("0.dev0" if text == "0" else text))
    )
    is_affected = False
    for at, kind in ordered:
        if kind == "introduced" and version >= at:
            is_affected = True
        if (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            is_affected = False
    return is_affected


def _parsed(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None  # no version that pip would install


# --- the report ----------------------------------------------------------------------------------


def known_holes(pinned: list[Pin], path: Path, *, now: datetime) -> tuple[list[str], str]:
    """The pinned packages that an entry is about, and a sentence on the database. Raises
    Unusable."""
    found: list[str] = []
    count, newest = 0, ""
    for advisory in advisories(path):
        count += 1
        newest = max(newest, str(advisory.get("modified", "")))
        if "withdrawn" in advisory:
            continue
        found += [_sentence(advisory, pin) for pin in pinned if affects(advisory, pin)]
    if not count:
        raise Unusable(f"{path} has no entry: expected the export of OSV for PyPI")
    until = _date(newest, path) + VALID_FOR
    if now > until:
        raise Unusable(
            f"{path} is too old: its newest entry is of {newest[:10]}, so it was good until "
            f"{until:%Y-%m-%d}. Download it again"
        )
    return sorted(set(found)), f"{count:,} entries, too old after {until:%Y-%m-%d}"


def _sentence(advisory: Mapping[str, Any], pin: Pin) -> str:
    names = ", ".join([str(advisory.get("id", "")), *map(str, advisory.get("aliases", ()))])
    fixes = ", ".join(fixed_in(advisory, pin.name)) or "no version"
    summary = " ".join(str(advisory.get("summary", "")).split())[:100]
    line = f"{pin}: {names}: {summary}; fixed in {fixes}"
    return "".join(c for c in line if c.isprintable())


def _date(text: str, path: Path) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise Unusable(f"{path} does not say when it was modified") from None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Audit the pinned packages, without a network.")
    parser.add_argument("--osv", type=Path, help="the export of OSV for PyPI: a zip, or a folder")
    parser.add_argument("files", type=Path, nargs="*", default=[ROOT / name for name in FILES])
    options = parser.parse_args(arguments)
    pinned = [pin for file in options.files for pin in pins(file)]
    problems = [*without_hash(pinned), *installed_otherwise(pinned)]
    database = ""
    if options.osv is None:
        problems.append(
            "No vulnerability database. Download the export of osv.dev for the ecosystem PyPI "
            "(all.zip), and name it: make audit OSV=all.zip"
        )
    else:
        try:
            holes, database = known_holes(pinned, options.osv, now=datetime.now(UTC))
            problems += holes
        except Unusable as error:
            problems.append(str(error))
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(pinned)} pins, {len(problems)} problems" + (f"; {database}" if database else ""))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
