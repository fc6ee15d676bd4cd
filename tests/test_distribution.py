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


def test_twin_is_what_runs_on_real_servers_too() -> None:
    file = "tests/scenarios/test_overlap.py"
    both = {f"{file}::test_it[embedded-15]", f"{file}::test_it[servers-15]"}
    alone = {f"{file}::test_other[embedded]", f"{file}::test_it[servers-30]", f"{file}::test_plain"}
    assert distribution.twins([*both, *alone]) == {f"{file}::test_it[embedded-15]"}


def test_tests_that_wait_are_spread_over_those_that_compute() -> None:
    computing = [f"tests/core/test_{n}.py::test_it" for n in range(4)]
    waiting = [f"tests/scenarios/test_{n}.py::test_it" for n in range(2)]
    places = distribution.mixed([*computing, *waiting, *(f"{id}[1]" for id in computing)])
    order = [name.removeprefix("tests/") for name in sorted(places, key=lambda name: places[name])]
    assert order == [
        "core/test_0.py",
        "scenarios/test_0.py",
        "core/test_1.py",
        "core/test_2.py",
        "scenarios/test_1.py",
        "core/test_3.py",
    ]


def test_no_storm_runs_beside_another_or_beside_a_browser() -> None:
    units = {
        distribution.unit(f"tests/{file}.py::test_it[servers]")
        for file in ("chaos/test_chaos", "chaos/test_gates", "browser/test_admin")
    }
    assert len(units) == 1
