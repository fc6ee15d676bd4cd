"""Limits of requests: one too many is 429, and nobody else is refused for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests import principals
from tests.core.api.client import Caller

pytestmark = pytest.mark.django_db

PATH = "/workers"
STRANGER = "203.0.113.7"


@pytest.fixture(autouse=True)
def still_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a test is in the first second of one window."""
    monkeypatch.setattr("orchestrator.core.api.limits.time.time", lambda: 1_800_000_001.0)


def limit(settings: Any, **values: float) -> None:
    settings.MUSTER = replace(settings.MUSTER, **values)


def token(name: str) -> str:
    return principals.token(name, principals.given("admin"))


def test_caller_has_so_many_requests_a_minute_with_all_tokens_and_others_have_theirs(
    settings: Any,
) -> None:
    limit(settings, requests_per_minute=3)
    ours, theirs = Caller(token("ours")), Caller(token("theirs"))
    assert [ours.get(PATH).status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = ours.get(PATH)
    assert refused["Retry-After"] == "59"
    assert refused.json()["type"] == "urn:muster:problem:too-many-requests"
    assert (
        "A caller has 3 requests a minute (MUSTER_REQUESTS_PER_MINUTE)" in refused.json()["detail"]
    )
    assert theirs.get(PATH).status_code == 200


def test_next_minute_begins_anew(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(settings, requests_per_minute=1)
    caller = Caller(token("ci"))
    assert [caller.get(PATH).status_code for _ in range(2)] == [200, 429]
    monkeypatch.setattr("orchestrator.core.api.limits.time.time", lambda: 1_800_000_060.0)
    assert caller.get(PATH).status_code == 200


def test_without_a_limit_nothing_is_counted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> int:
        raise AssertionError("counted")

    monkeypatch.setattr("orchestrator.core.shared_cache.count", fail)
    assert Caller(token("ci")).get(PATH).status_code == 200


def asked(text: str, address: str = STRANGER) -> int:
    status: int = Caller(text).client.get(f"/api/v1{PATH}", REMOTE_ADDR=address).status_code
    return status


def test_address_with_many_refused_tokens_is_refused_before_the_database_is_asked(
    settings: Any, django_assert_num_queries: Any
) -> None:
    limit(settings, refused_tokens_per_minute=3)
    assert [asked(f"mst_guess{number}") for number in range(5)] == [401, 401, 401, 429, 429]
    with django_assert_num_queries(0):
        assert asked("mst_another") == 429
    assert asked("mst_guess", "203.0.113.8") == 401, "of another address"


def test_token_that_was_accepted_lately_passes_from_an_address_of_strangers(settings: Any) -> None:
    limit(settings, refused_tokens_per_minute=2)
    known, unknown = token("known"), token("unknown")
    assert asked(known) == 200
    assert [asked("mst_guess") for _ in range(3)] == [401, 401, 429]
    assert (asked(known), asked(unknown)) == (200, 429)


def test_proxy_that_does_not_say_for_whom_it_asks_is_not_braked(settings: Any) -> None:
    limit(settings, refused_tokens_per_minute=1)
    client = Caller("mst_guess").client
    statuses = {
        client.get(f"/api/v1{PATH}", headers={"via": "1.1 proxy"}).status_code for _ in range(4)
    }
    assert statuses == {401}
