"""Gates in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios import doors, foreign
from tests.scenarios.doors import Doors
from tests.scenarios.installation import Backend


@pytest.fixture
def opened(embedded_backend: Backend) -> Iterator[Doors]:
    with doors.installed(embedded_backend, "embedded") as opened:
        yield opened


def test_gates_are_kept_by_a_service_of_their_own(opened: Doors) -> None:
    """Executors were told to leave gates to it."""
    installation, door = opened.installation, opened.make()
    installation.service("executor").kill()
    installation.start("executor", "manage.py", "executor", "--no-gates")
    gate = installation.start("gate", "manage.py", "gate", "--name", "door")
    installation.ready()
    door.make()
    door.send("t1", {"text": "hello"})

    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")
    assert "gate door: alive" in installation.command("gate", "--ping", "door")

    # an orderly end gives nothing back that would count as lost
    gate.process.terminate()
    assert gate.exit_status() == 0
    door.send("t2", {"text": "later"})
    foreign.wait_until(lambda: door.consumers(door.input) == 0, "still consumed")
    assert door.client.get(door.output) is None
    installation.start("gate", "manage.py", "gate", "--name", "door")
    assert door.client.wait(door.output).told == ("t2", "RESULT_SUCCESS")
    door.close()
