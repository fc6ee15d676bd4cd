"""A broker of several hosts: one that is silent costs its time limit once."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core import brokers

LIMIT_SECONDS = 1


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A host that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}//"


@pytest.fixture(autouse=True)
def _new_process(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MUSTER = replace(settings.MUSTER, publish_timeout_seconds=LIMIT_SECONDS)
    monkeypatch.setattr(brokers, "_last_urls", {})


def test_silent_hosts_are_passed_and_next_time_not_asked(
    silent_url: str, rabbitmq_url: str, settings: Any
) -> None:
    settings.BROKER_URL = ";".join([silent_url, silent_url, rabbitmq_url])
    for least_seconds, most_seconds in ((2 * LIMIT_SECONDS, 30), (0, 2 * LIMIT_SECONDS)):
        began = time.monotonic()
        with brokers.connection() as link:
            brokers.ensure_connected(link)
            assert f":{link.port}/" in rabbitmq_url
        assert least_seconds <= time.monotonic() - began < most_seconds


def test_host_that_dies_is_followed_by_the_others(
    silent_url: str, rabbitmq_url: str, settings: Any
) -> None:
    settings.BROKER_URL = f"{rabbitmq_url};{silent_url}"
    with brokers.connection() as link:
        brokers.ensure_connected(link)
    settings.BROKER_URL = f"{silent_url};{rabbitmq_url}"
    with brokers.connection() as link:
        assert link.as_uri(include_password=True).rstrip("/") in rabbitmq_url
        link.maybe_switch_next()
        assert link.as_uri(include_password=True).rstrip("/") in silent_url


def test_all_hosts_that_are_silent_are_an_error_in_time(silent_url: str, settings: Any) -> None:
    settings.BROKER_URL = f"{silent_url};{silent_url}"
    began = time.monotonic()
    with brokers.connection() as link, pytest.raises(brokers.errors()):
        brokers.ensure_connected(link)
    assert time.monotonic() - began < 5 * LIMIT_SECONDS
