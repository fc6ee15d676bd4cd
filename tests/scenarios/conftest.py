"""Whole flows on real processes, each on both backends where it applies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.scenarios.installation import Backend, Installation

BACKENDS = ["embedded", "servers"]
TIMEOUT_SECONDS = 600
"""Of a test that does not say otherwise. The first on servers waits for them to start, too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.scenario)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """The embedded default, and PostgreSQL with RabbitMQ and Redis."""
    chosen: Backend = request.getfixturevalue(f"{request.param}_backend")
    return chosen


@pytest.fixture(scope="session")
def embedded_backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def servers_backend(
    shared_postgres: servers.PostgresServer,
    shared_rabbit: servers.RabbitServer,
    shared_redis: servers.RedisServer,
) -> Iterator[Backend]:
    """Stays up while tests of the embedded default come in between."""
    backend = Backend(shared_postgres, shared_rabbit, shared_redis)
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
def shared(backend: Backend, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """One installation for the tests of a module that break none of its services: an executor, two
    workers with a pool of either kind. Its settings may be the module's, in SHARED."""
    installation = Installation(backend, **getattr(request.module, "SHARED", {}))
    try:
        installation.start_executor()
        installation.start_worker("w1", pool="prefork")
        installation.start_worker("w2", pool="threads")
        installation.ready()
        yield installation
    finally:
        installation.close()


@pytest.fixture
def enduring(shared: Installation, backend: Backend) -> Iterator[Installation]:
    """The shared installation, for tests that break the servers under it: it has to be whole again
    after each."""
    shared.wait_until_active("w1", "w2")
    yield shared
    backend.restore()


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
        for installation in dict.fromkeys([*item.stash.get(MADE, []), *_given_to(item)]):
            told = installation.report_then or installation.report()
            report.sections.append(("installation", told))
    return report


def _given_to(item: pytest.Item) -> Iterator[Installation]:
    """The installations that come from fixtures, such as shared ones."""
    for value in getattr(item, "funcargs", {}).values():
        several = value if isinstance(value, tuple) else (value,)
        yield from (each for each in several if isinstance(each, Installation))


MADE = pytest.StashKey[list[Installation]]()
MEASURED = "measured"
