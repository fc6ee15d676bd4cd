"""Whole flows on real processes, each on both backends where it applies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.scenarios.installation import Backend, Installation

BACKENDS = ["embedded", "servers"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.scenario)
            # one process for each backend, which is started once
            item.add_marker(pytest.mark.xdist_group(f"scenarios, {_backend_of(item)}"))


def _backend_of(item: pytest.Item) -> str:
    parameters: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return str(parameters.get("backend", "embedded"))


@pytest.fixture(scope="session", params=BACKENDS)
def backend(
    request: pytest.FixtureRequest, start_shared_server: Callable[..., Any]
) -> Iterator[Backend]:
    """The embedded default, and PostgreSQL with RabbitMQ and Redis."""
    if request.param == "embedded":
        backend = Backend()
    else:
        backend = Backend(
            start_shared_server(servers.PostgresServer),
            start_shared_server(servers.RabbitServer),
            start_shared_server(servers.RedisServer),
        )
    yield backend
    backend.close()


@pytest.fixture
def install(backend: Backend, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Make installations for one test: `install(worker_queue_ttl_ms=3000)`."""
    made: list[Installation] = []
    request.node.stash[MADE] = made

    def make(**settings: Any) -> Installation:
        made.append(Installation(backend, **settings))
        return made[-1]

    yield make
    backend.restore()
    for installation in made:
        installation.close()


@pytest.fixture(scope="module")
def shared(backend: Backend) -> Iterator[Installation]:
    """One installation for the tests of a module that break nothing: an executor, two workers."""
    installation = Installation(backend)
    try:
        installation.start_executor()
        installation.start_worker("w1")
        installation.start_worker("w2")
        installation.ready()
        yield installation
    finally:
        installation.close()


@pytest.fixture
def measured(backend: Backend, request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """Note down how long something took; told at the end of the run."""

    def note(what: str, seconds: float) -> None:
        # travels with the test's report, which may be made in another process
        line = f"{seconds:7.3f} s  {what} ({backend.name})"
        request.node.user_properties.append((MEASURED, line))

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for passed in terminalreporter.stats.values() for report in passed]
    lines = [
        line
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, line in report.user_properties
        if name == MEASURED
    ]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call" and report.failed:
        # what every service wrote, as it is now: the end of the test removes it
        installations = item.stash.get(MADE, [])
        if isinstance(item, pytest.Function) and "shared" in item.funcargs:
            shared: Any = item.funcargs["shared"]
            installations = [shared]
        for installation in installations:
            told = installation.report_then or installation.report()
            report.sections.append(("installation", told))
    return report


MADE = pytest.StashKey[list[Installation]]()
MEASURED = "measured"
