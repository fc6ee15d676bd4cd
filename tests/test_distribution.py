"""What a file sets up for itself is set up once, however many processes share the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import distribution


@pytest.fixture(scope="module")
def times_set_up(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one line for each process that has set this up."""
    directory = tmp_path_factory.getbasetemp()
    among_processes = hasattr(request.config, "workerinput")
    path = (directory.parent if among_processes else directory) / "times_set_up"
    with path.open("a") as file:
        file.write("once\n")
    return path


@pytest.mark.parametrize("number", range(6))
def test_fixture_of_a_module_is_set_up_once(times_set_up: Path, number: int) -> None:
    assert times_set_up.read_text() == "once\n"


def test_tests_on_servers_are_apart_from_the_others_of_their_file() -> None:
    units = [
        distribution.unit(f"tests/scenarios/test_shutdown.py::test_it[{parameters}]")
        for parameters in ("embedded-15", "servers-15", "pause-servers", "observers")
    ]
    assert units[0] == units[3] == "tests/scenarios/test_shutdown.py"
    assert units[1] == units[2] == "tests/scenarios/test_shutdown.py, on servers"
