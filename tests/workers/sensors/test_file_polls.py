"""Changes of files and lines that are added are found once, whatever becomes of the files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.automation.sensors.reports import Report
from workers.sensors import file_polls
from workers.sensors.file_polls import FilePoll
from workers.sensors.lives import Failed


@pytest.fixture
def place(settings: Any, tmp_path: Path) -> Path:
    """A directory in which polls may look."""
    folder = tmp_path / "incoming"
    folder.mkdir()
    settings.MUSTER = replace(settings.MUSTER, sensor_file_roots=str(folder))
    return folder


class Watcher:
    """A poll with its cursor."""

    def __init__(self, pattern: Path | str, **parameters: Any) -> None:
        self.poll = FilePoll(7, {"path": str(pattern), **parameters})
        self.cursor: Mapping[str, Any] = {}
        self.keys: list[str | None] = []

    def look(self) -> list[Report]:
        found: list[Report] = []
        for some, cursor in self.poll.look(self.cursor):
            found += some
            self.cursor = cursor
        self.keys += [report.key for report in found]
        return found

    def changes(self) -> list[tuple[str, str]]:
        return [(Path(r.payload["path"]).name, r.payload["change"]) for r in self.look()]

    def lines(self) -> list[str]:
        return [report.payload["line"] for report in self.look()]


def test_created_changed_and_deleted_files_are_events(place: Path) -> None:
    (place / "old.csv").write_text("1")
    watcher = Watcher(place / "*.csv")
    assert watcher.changes() == [], "what is there at first"
    (place / "new.csv").write_text("1")
    (place / "new.txt").write_text("1")
    assert watcher.changes() == [("new.csv", "created")]
    (place / "old.csv").write_text("12")
    (place / "new.csv").unlink()
    assert watcher.changes() == [("new.csv", "deleted"), ("old.csv", "changed")]
    assert watcher.changes() == []
    assert len(set(watcher.keys)) == 3


def test_only_the_changes_that_are_asked_for_are_events(place: Path) -> None:
    watcher = Watcher(place / "*", changes=["deleted"])
    watcher.look()
    (place / "a").write_text("1")
    assert watcher.changes() == []
    (place / "a").unlink()
    assert watcher.changes() == [("a", "deleted")]


def test_what_is_there_at_first_is_reported_on_demand(place: Path) -> None:
    (place / "a").write_text("1")
    assert Watcher(place / "*", existing="report").changes() == [("a", "created")]


def test_file_that_goes_and_comes_back_as_it_was_is_an_event_with_a_key_of_its_own(
    place: Path,
) -> None:
    watcher = Watcher(place / "*.csv", changes=["created"])
    watcher.look()
    file, elsewhere = place / "a.csv", place / "failed"
    file.write_text("1")
    for _ in range(3):
        assert watcher.changes() == [("a.csv", "created")]
        file.rename(elsewhere)
        assert watcher.changes() == []
        elsewhere.rename(file)
    assert len(set(watcher.keys)) == 3


def test_lines_are_reported_once_they_are_whole(place: Path) -> None:
    log = place / "log"
    log.write_text("old\n")
    watcher = Watcher(log, lines=True)
    assert watcher.lines() == []
    with log.open("a") as file:
        file.write("one\ntwo\nhal")
    assert watcher.lines() == ["one", "two"]
    with log.open("a") as file:
        file.write("f\n")
    assert watcher.lines() == ["half"]


def test_rotated_and_truncated_files_are_read_from_their_beginning(place: Path) -> None:
    log = place / "log"
    log.write_text("1\n2\n")
    watcher = Watcher(log, lines=True, existing="report")
    assert watcher.lines() == ["1", "2"]
    log.rename(place / "log.1")
    log.write_text("1\n")
    assert watcher.lines() == ["1"]
    log.write_text("1\n2\n3\n")
    assert watcher.lines() == ["2", "3"]
    os.truncate(log, 0)
    watcher.look()
    log.write_text("1\n")
    assert watcher.lines() == ["1"]
    assert len(set(watcher.keys)) == len(watcher.keys), "the same line again has another key"


def test_file_that_is_renamed_goes_on_where_it_was(place: Path) -> None:
    """As the rotation of a log renames it: what was written last is in it, under its new name."""
    log = place / "app.log"
    log.write_text("old\n")
    watcher = Watcher(place / "app.log*", lines=True)
    assert watcher.lines() == []
    with log.open("a") as file:
        file.write("1\n")
        file.flush()
        assert watcher.lines() == ["1"]
        file.write("2\n")
    (place / "app.log").rename(place / "app.log.1")
    log.write_text("3\n")
    found = [(Path(r.payload["path"]).name, r.payload["line"]) for r in watcher.look()]
    assert found == [("app.log", "3"), ("app.log.1", "2")]
    (place / "app.log.1").rename(place / "app.log.2")
    assert watcher.lines() == []


def test_file_with_the_inode_of_another_is_read_from_its_beginning(
    place: Path, monkeypatch: Any
) -> None:
    """A file system gives the inode of a file that was removed to the next one."""
    first = place / "1.log"
    first.write_text("a\nb\n")
    watcher = Watcher(place / "*.log", lines=True, existing="report")
    assert watcher.lines() == ["a", "b"]
    first.rename(place / "2.log")
    with (place / "2.log").open("r+") as file:  # the same inode, and no shorter
        file.write("c\nd\ne\n")
    assert watcher.lines() == ["c", "d", "e"]


def test_file_with_two_names_is_one(place: Path) -> None:
    (place / "app-7.log").write_text("1\n")
    (place / "current.log").symlink_to(place / "app-7.log")
    watcher = Watcher(place / "*.log", lines=True, existing="report")
    assert watcher.lines() == ["1"]
    assert watcher.lines() == []


def test_file_whose_name_is_no_text_is_read(place: Path) -> None:
    path = os.fsencode(place) + b"/n\xe4.log"
    with open(path, "wb") as file:
        file.write(b"1\n")
    watcher = Watcher(place / "n*.log", lines=True, existing="report")
    [report] = watcher.look()
    assert report.payload["path"] == f"{place}/n\\xe4.log"
    with open(path, "ab") as file:
        file.write(b"2\n")
    assert watcher.lines() == ["2"]
    assert Watcher(place / "n*.log", existing="report").changes() == [("n\\xe4.log", "created")]


def test_many_lines_come_a_hundred_at_a_time_each_with_its_cursor(place: Path) -> None:
    (place / "log").write_text("".join(f"{number}\n" for number in range(250)))
    steps = list(
        FilePoll(7, {"path": str(place / "log"), "lines": True, "existing": "report"}).look({})
    )
    assert [len(found) for found, _ in steps] == [100, 100, 50, 0]
    watcher = Watcher(place / "log", lines=True)
    watcher.cursor = steps[1][1]
    assert watcher.lines() == [str(number) for number in range(200, 250)]


def below(place: Path, pattern: str) -> list[str]:
    found = Watcher(place / pattern, existing="report").look()
    return sorted(str(Path(r.payload["path"]).relative_to(place)) for r in found)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.txt", "b.log"]),
        ("?.txt", ["a.txt"]),
        ("[ab].*", ["a.txt", "b.log"]),
        ("[!b].*", ["a.txt"]),
        (".*", [".hidden"]),
        ("*/*.txt", ["x/c.txt"]),
        ("x/y/d.txt", ["x/y/d.txt"]),
        ("**", ["a.txt", "b.log", "x/c.txt", "x/y/d.txt"]),
        ("**/**", ["a.txt", "b.log", "x/c.txt", "x/y/d.txt"]),
        ("**/*.txt", ["a.txt", "x/c.txt", "x/y/d.txt"]),
        ("**/y/*", ["x/y/d.txt"]),
        ("x/**/d.txt", ["x/y/d.txt"]),
        ("z/*", []),
        ("a.txt/*", []),
    ],
)
def test_patterns_find_what_they_say(place: Path, pattern: str, expected: list[str]) -> None:
    (place / "x/y").mkdir(parents=True)
    for name in ("a.txt", "b.log", ".hidden", "x/c.txt", "x/y/d.txt", "x/.no.txt"):
        (place / name).write_text("1")
    assert below(place, pattern) == expected


def test_poll_looks_only_below_the_directories_of_the_setting(place: Path, settings: Any) -> None:
    outside = place.parent / "secret"
    outside.write_text("1")
    (place / "link").symlink_to(outside)
    for pattern in (outside, place / "link", f"{place}/../secret", f"{place}/*/../../s*"):
        with pytest.raises(Failed, match="not below MUSTER_SENSOR_FILE_ROOTS"):
            Watcher(pattern).look()
    settings.MUSTER = replace(settings.MUSTER, sensor_file_roots="")
    with pytest.raises(Failed, match="names no directory"):
        Watcher(place / "*").look()


def test_what_is_outside_is_neither_named_nor_looked_through(place: Path, monkeypatch: Any) -> None:
    outside = place.parent / "keys"
    outside.mkdir()
    (outside / "id_rsa_prod").write_text("1")
    (place / "link").symlink_to(outside)
    (place / "up").symlink_to(place.parent)
    (place / "round").symlink_to(place)
    looked: list[Path] = []
    scandir = os.scandir

    def noted(path: Any) -> Any:
        looked.append(Path(path).resolve())
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    for pattern in (f"{outside}/*", "/**", f"{place}/link/**"):
        with pytest.raises(Failed) as failed:
            Watcher(pattern).look()
        assert str(failed.value) == f"{pattern} is not below MUSTER_SENSOR_FILE_ROOTS"
    for pattern in ("**", "*", "*/*", "*/**", "**/link/*", "l*/*"):
        assert below(place, pattern) == []
    assert [path for path in looked if not path.is_relative_to(place)] == []


@pytest.mark.parametrize("moment", ["checked", "looked at"])
def test_what_was_put_there_since_the_look_is_not_read(
    place: Path, monkeypatch: Any, moment: str
) -> None:
    """A link to something outside, in place of a file."""
    (place.parent / "secret").write_text("secret\n")
    log = place / "log"
    log.write_text("1\n")
    status = file_polls._status

    def swapping(path: str, allowed: Any) -> Any:
        before = status(path, allowed)
        log.unlink()
        log.symlink_to(place.parent / "secret")
        return before if moment == "looked at" else status(path, allowed)

    monkeypatch.setattr(file_polls, "_status", swapping)
    watcher = Watcher(log, lines=True, existing="report")
    assert watcher.lines() == []
    assert watcher.cursor["lines"] == {}
