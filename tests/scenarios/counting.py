"""A pack whose sensor counts, in a process of a few lines of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.scenarios.installation import Installation
from workers import processes

REF, TYPE = "counting.count", "counting.counted"

PROGRAM = """#!/usr/bin/env python3
import json, sys, time
configuration = json.loads(sys.stdin.readline())["configure"]
parameters = configuration["parameters"]
until, pause = parameters["until"], parameters["pause_seconds"]
for number in range(configuration["cursor"].get("next", 1), min(until, MOST) + 1):
    payload = {"number": number, "version": VERSION}
    event = {"trigger": "counting.counted", "payload": payload, "key": str(number)}
    line = {"n": number, "event": event, "cursor": {"next": number + 1}}
    sys.stdout.write(json.dumps(line) + "\\n")
    if number % 100 == 0:
        sys.stdout.flush()
        time.sleep(pause)
sys.stdout.flush()
while True:
    print('{"alive": true}', flush=True)
    time.sleep(1)
"""


def install(
    muster: Installation,
    *,
    until: int,
    pause_seconds: float = 0.0,
    version: int = 1,
    most: int | None = None,
) -> None:
    """Install a pack whose sensor counts to this number, a hundred at a time. Versions differ in
    the code alone: in what they report, and that one may go no further than `most`."""
    folder = muster.directory / "counting"
    (folder / "sensors").mkdir(parents=True, exist_ok=True)
    (folder / "triggers").mkdir(exist_ok=True)
    program = PROGRAM.replace("#!/usr/bin/env python3", f"#!{sys.executable}")
    program = program.replace("VERSION", str(version)).replace("MOST", str(most or until))
    (folder / "count.py").write_text(program)
    (folder / "count.py").chmod(0o755)
    _write(folder / "pack.yaml", {"name": "counting", "version": "1"})
    _write(folder / "triggers" / "counted.yaml", {"name": "counted"})
    sensor = {
        "name": "count",
        "runtime": "shell",
        "entry_point": ["./count.py"],
        "trigger_types": ["counted"],
        "parameters": {"until": until, "pause_seconds": pause_seconds},
    }
    _write(folder / "sensors" / "count.yaml", sensor)
    muster.command("pack", "install", str(folder))


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content))  # which is YAML


def programs(muster: Installation, *, fence: int | None = None) -> list[psutil.Process]:
    """The processes of the sensor that run now, of the life with this fence or of any. Tests of
    other installations have sensors of the same name at the same time."""
    temporary = str(muster.directory / "tmp")

    def is_of_it(process: psutil.Process) -> bool:
        try:
            environment = process.environ()
            if not environment.get("TMPDIR", "").startswith(temporary):
                return False
            mark = environment.get(processes.SENSOR, "")
            return mark == f"{REF}:{fence}" or (fence is None and mark.startswith(f"{REF}:"))
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if is_of_it(process)]


def counted(muster: Installation) -> int:
    """How many numbers are events."""
    number: int = muster.client.call("count_of_events", type=TYPE)
    return number


def check(muster: Installation, until: int) -> None:
    """Each number is one event."""
    assert muster.client.call("numbers_of", type=TYPE) == [(n, 1) for n in range(1, until + 1)]
