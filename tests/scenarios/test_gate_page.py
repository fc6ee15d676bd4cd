"""The client of docs/gates.md, as it stands there, against RabbitMQ."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios import doors
from tests.scenarios.doors import CLASSIFIERS, Doors
from tests.scenarios.installation import REPOSITORY, Backend

MOST_LINES = 40


@pytest.fixture
def opened(servers_backend: Backend) -> Iterator[Doors]:
    with doors.installed(servers_backend, "quorum") as opened:
        yield opened


def client() -> str:
    page = (REPOSITORY / "docs" / "gates.md").read_text()
    found = re.search(r"```python client\.py\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def test_client_of_the_page_gets_its_answers(opened: Doors, tmp_path: Path) -> None:
    door = opened.make()
    door.name = "orders"
    opened.installation.client.call("make_queues", names=["orders"])
    opened.installation.start_worker("w2", queues="orders")
    opened.installation.ready()
    door.make(classifiers=CLASSIFIERS)
    program = tmp_path / "client.py"
    program.write_text(client())

    ran = subprocess.run(
        [sys.executable, str(program)],
        env={"PATH": os.environ["PATH"], "GATE_URL": opened.url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ran.returncode == 0, ran.stderr
    lines = sorted(ran.stdout.splitlines())
    assert lines == [f'RESULT_SUCCESS {{"text": "task {number}"}}' for number in range(10)]
    assert len(client().splitlines()) <= MOST_LINES
    door.close()
