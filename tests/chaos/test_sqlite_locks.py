"""The storm knows when what it froze holds the embedded database."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.chaos.sqlite_locks import is_held_by

HOLD = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.stdin:
    database.execute(statement).fetchall()
    print("done", flush=True)
"""


def test_it_is_held_from_begin_to_commit(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE thing (id)")
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(file)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

        def execute(statement: str) -> bool:
            """Whether it is held afterwards."""
            assert holder.stdin is not None
            assert holder.stdout is not None
            print(statement, file=holder.stdin, flush=True)
            assert holder.stdout.readline() == "done\n"
            return is_held_by(file, {holder.pid})

        with holder:
            assert not execute("SELECT * FROM thing")
            assert execute("BEGIN IMMEDIATE")
            assert not is_held_by(file, {os.getpid()})
            assert not is_held_by(tmp_path / "other.db", {holder.pid})
            assert not execute("COMMIT")


def test_nothing_is_held_without_a_file(tmp_path: Path) -> None:
    assert not is_held_by(tmp_path / "some.db", {os.getpid()})
