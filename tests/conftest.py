"""What every test may ask for: private servers, started when first asked for.

Unit tests run on SQLite and need none of this; the choice of a database is told in databases.py.
`TEST_DATABASE_URL`, `TEST_BROKER_URL` and `TEST_REDIS_URL` name servers to use instead of private
ones. A test whose tool is not installed skips itself on a laptop, and fails where `CI` is set.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import psycopg
import pytest
from django.core.cache import caches
from django.db import connection

from orchestrator.access import audit
from orchestrator.access.audit import requests as audit_of_requests
from orchestrator.automation.receiving import counts, secrets
from orchestrator.console import kept
from orchestrator.core import brokers, clock, demand, maintenance, messages, news, publisher, relay
from orchestrator.core.api import limits
from orchestrator.core.executions import placing
from orchestrator.policies import book
from tests import alone, databases, distribution, once, principals, servers
from tests.core.api.client import Caller

AnyServer = TypeVar("AnyServer", bound=servers.Server)


def pytest_configure() -> None:
    """Refuse to run against whatever the shell happens to point at."""
    # a machine that does other work is slow to make examples, and that is no fault of the code
    hypothesis.settings.register_profile(
        "busy machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("busy machine")
    found = {"DATABASE_URL", "BROKER_URL", "REDIS_URL"} & os.environ.keys()
    if found:
        raise pytest.UsageError(
            f"{', '.join(sorted(found))} set: tests never use a deployment's servers. "
            "Unset, or name servers for tests in TEST_DATABASE_URL, TEST_BROKER_URL, TEST_REDIS_URL"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> distribution.WholeFiles:
    return distribution.WholeFiles(config, log)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    twins = distribution.twins(item.nodeid for item in items)
    for item in items:
        if item.nodeid in twins:
            item.add_marker("twin")
    if hasattr(config, "workerinput"):  # of several processes, each with the same order
        places = distribution.mixed(item.nodeid for item in items)
        items.sort(key=lambda item: (places[distribution.unit(item.nodeid)], not _is_alone(item)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Wait before the time of a test begins to count."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with alone.entered(is_alone=_is_alone(item)):
        return (yield)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    return _failed_if_skipped_in_ci(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    return _failed_if_skipped_in_ci(report)


def _failed_if_skipped_in_ci(report: Any) -> Any:
    """What was skipped proves nothing: CI has every tool, or has to say which one it lacks."""
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"Nothing is skipped where CI is set. {reason}"
    return report


@pytest.fixture(scope="session", autouse=True)
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one process of this run makes is there for all."""
    own = tmp_path_factory.getbasetemp()
    once.place = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def shared_postgres(start_shared_server: Callable[..., Any]) -> servers.PostgresServer:
    """A PostgreSQL shared by the tests of this run. Who stops it starts it again."""
    server: servers.PostgresServer = start_shared_server(servers.PostgresServer)
    return server


@pytest.fixture(scope="session")
def shared_rabbit(start_shared_server: Callable[..., Any]) -> servers.RabbitServer:
    """A RabbitMQ shared by the tests of this run. Who stops it starts it again."""
    server: servers.RabbitServer = start_shared_server(servers.RabbitServer)
    return server


@pytest.fixture(scope="session")
def shared_redis(start_shared_server: Callable[..., Any]) -> servers.RedisServer:
    """A Redis shared by the tests of this run. Who stops it starts it again."""
    server: servers.RedisServer = start_shared_server(servers.RedisServer)
    return server


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    return _given_or_private("TEST_DATABASE_URL", "shared_postgres", request)


@pytest.fixture(scope="session")
def rabbitmq_url(request: pytest.FixtureRequest) -> str:
    return _given_or_private("TEST_BROKER_URL", "shared_rabbit", request)


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> str:
    return _given_or_private("TEST_REDIS_URL", "shared_redis", request)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[str]:
    """A migrated database of the test's own, as `default`: each test on SQLite and PostgreSQL."""
    lend: databases.Lender = request.getfixturevalue(f"{request.param}_lender")
    with django_db_blocker.unblock(), lend() as config, databases.as_default(config):
        yield request.param


@pytest.fixture
def late(database: str) -> Iterator[Any]:
    """A session of PostgreSQL that commits later."""
    place = connection.settings_dict
    with psycopg.connect(
        host=place["HOST"], port=place["PORT"], user=place["USER"],
        password=place["PASSWORD"], dbname=place["NAME"],
    ) as session:  # fmt: skip
        yield session


@pytest.fixture(scope="session")
def sqlite_lender(
    django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[databases.Lender]:
    directory = tmp_path_factory.mktemp("databases")
    with django_db_blocker.unblock(), databases.sqlite_lender(directory) as lender:
        yield lender


@pytest.fixture(scope="session")
def postgresql_lender(django_db_blocker: Any, postgres_url: str) -> Iterator[databases.Lender]:
    with django_db_blocker.unblock(), databases.postgresql_lender(postgres_url) as lender:
        yield lender


@pytest.fixture(autouse=True)
def audit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the audit writes soon, in a thread, is written at once, in the test's transaction."""
    for module in (audit, audit_of_requests):
        monkeypatch.setattr(module, "record_soon", audit.record)


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Takes a maintenance function's name and what is done instead of it."""

    def replace(name: str, function: Any) -> None:
        known = maintenance.functions()
        monkeypatch.setitem(known, name, dataclasses.replace(known[name], function=function))

    return replace


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> clock.Watch:
    """What is known of the clock: that nobody has ever set it. It is asked once in a test, so that
    queries can be counted."""
    watch = clock.Watch()
    watch.steady_since = float("-inf")
    monkeypatch.setattr(clock, "watch", watch)
    monkeypatch.setattr(clock, "ASK_EVERY_SECONDS", 3_600.0)
    return watch


@pytest.fixture(autouse=True)
def nothing_takes_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is given the time ends at that time, so that tests can compare times; not in
    a test that is marked `takes_time`."""
    if request.node.get_closest_marker("takes_time") is None:
        monkeypatch.setattr(clock.Running, "__call__", lambda self: self.at)


@pytest.fixture(autouse=True)
def placed_by_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test of this process requests is left to the executor, as it is under load: see
    `tests.core.executions.test_placing` for the rest."""
    monkeypatch.setattr(placing, "is_idle", lambda: False)


@pytest.fixture(autouse=True)
def nobody_has_asked_yet() -> None:
    """What one test asked for counts for no limit of the next."""
    caches["process"].clear()
    kept.clear()
    limits.refused_tokens.forget()
    secrets.kept.forget()


@pytest.fixture(autouse=True)
def deliveries_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What became of them is written in the test's transaction, and not by a thread."""
    monkeypatch.setattr(counts.Counts, "_soon", counts.Counts.write)


@pytest.fixture(autouse=True)
def nobody_wants_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """No app is asked whether it wants them, so that queries can be counted."""
    monkeypatch.setattr(demand, "ASK_EVERY_SECONDS", float("inf"))
    for of_listener, _ in news._listeners():
        monkeypatch.setattr(of_listener, "exists", False)


@pytest.fixture(autouse=True)
def policies_are_read_after_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are none until this process makes one, so that queries can be counted."""
    monkeypatch.setattr(book, "KNOWN_FOR_SECONDS", float("inf"))
    monkeypatch.setattr(book, "_read", (0.0, book.Book()))


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's clock stands still: what happens every so often happens in no test that counts
    queries, such as asking for the time again, or noting a token's use again."""
    at = clock.now()
    monkeypatch.setattr(clock, "now", lambda: at)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[messages.Message]:
    """What is published from here on, in place of a broker: it takes everything."""
    taken: list[messages.Message] = []

    def send(batch: Iterable[messages.Message]) -> list[messages.Message]:
        taken.extend(batch)
        return []

    monkeypatch.setattr(publisher, "send", send)
    monkeypatch.setattr(relay, "send_soon", send)
    return taken


@pytest.fixture
def embedded_broker(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The broker that is published to is a file of the test's own."""
    settings.BROKER_URL = f"sqlitemq:///{tmp_path / 'broker.db'}"
    monkeypatch.setattr(relay, "_relay", None)  # that of another test has another broker
    publisher.drop_lane()
    yield
    publisher.drop_lane()


@pytest.fixture
def channel(embedded_broker: None) -> Iterator[Any]:
    """A channel of the embedded broker, in which nothing is declared yet."""
    with brokers.connection() as link:
        yield link.default_channel


@pytest.fixture
def token() -> str:
    """That of an admin."""
    return principals.token("ci", principals.given("admin"))


@pytest.fixture
def caller(token: str) -> Caller:
    """Who calls the API, with a token."""
    return Caller(token)


@pytest.fixture
def start_server() -> Iterator[Callable[..., Any]]:
    """Start servers for one test, to stop, kill and pause: `start_server(servers.RabbitServer)`."""
    with contextlib.ExitStack() as stack:

        def start(server: type[AnyServer], **options: Any) -> AnyServer:
            return stack.enter_context(_running(server, **options))

        yield start


@pytest.fixture(scope="session")
def start_shared_server() -> Iterator[Callable[..., Any]]:
    """Start servers for the whole run that tests may stop, if they start them again."""
    with contextlib.ExitStack() as stack:

        def start(server: type[AnyServer], **options: Any) -> AnyServer:
            return stack.enter_context(_running(server, **options))

        yield start


def _given_or_private(variable: str, fixture: str, request: pytest.FixtureRequest) -> str:
    return os.environ.get(variable) or str(request.getfixturevalue(fixture).url)


@contextlib.contextmanager
def _running(server: type[AnyServer], **options: Any) -> Iterator[AnyServer]:
    try:
        private = server(**options)
    except servers.MissingBinary as missing:
        pytest.skip(str(missing))
    with private:
        yield private
