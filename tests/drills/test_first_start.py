"""The token of `up`: for this machine, for a day, replaced in time."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.access import identities, tokens
from orchestrator.access.models import ApiToken, Identity
from orchestrator.core import authority, clock
from orchestrator.drills import first_start
from tests.principals import ROOT, given, service

pytestmark = pytest.mark.django_db

HERE, ELSEWHERE = "127.0.0.1", "192.0.2.7"


@pytest.fixture
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path


def make(now: datetime) -> str | None:
    secret = first_start.make_token(now=now)
    return secret.text if secret else None


def test_token_may_do_everything_from_this_machine_for_a_day(directory: Path) -> None:
    now = clock.now()
    text = make(now)
    assert text is not None
    assert (directory / "api_token").read_text().strip() == text
    known = tokens.authenticate(text, now=now, address=HERE)
    assert known is not None
    assert authority.may(known, "actions.run_any_command")
    assert authority.may(known, "access.manage")
    assert tokens.authenticate(text, now=now, address=ELSEWHERE) is None
    assert tokens.authenticate(text, now=now, address="") is None
    late = now + timedelta(hours=24)
    assert tokens.authenticate(text, now=late, address=HERE) is None


def test_token_is_kept_for_half_a_day_and_then_replaced_with_an_overlap(directory: Path) -> None:
    now = clock.now()
    first = make(now)
    assert first is not None
    assert make(now + timedelta(hours=11)) is None
    later = now + timedelta(hours=13)
    second = make(later)
    assert second is not None
    for text in (first, second):
        assert tokens.authenticate(text, now=later, address=HERE)
    row = tokens.of_text(second)
    assert row is not None
    assert (row.name, row.networks) == ("up", list(tokens.LOOPBACK))
    assert row.expires_at == later + timedelta(hours=24)
    much_later = later + timedelta(days=3)
    third = make(much_later)
    assert third is not None
    assert tokens.authenticate(third, now=much_later, address=HERE)
    assert Identity.objects.count() == 1


def test_token_that_somebody_else_stored_is_replaced(directory: Path) -> None:
    """Such as one of before, which never expires and is accepted from anywhere."""
    now = clock.now()
    owner = service("up-of-before", given("admin"))
    _, text = tokens.create(name="up", owner=owner, by=ROOT, now=now)
    (directory / "api_token").write_text(text)
    new = make(now)
    assert new is not None
    row = tokens.of_text(new)
    assert row is not None
    assert (row.name, str(row.identity)) == ("up-2", "service:up")
    assert ApiToken.objects.get(name="up").revoked_at is None


def test_token_is_not_made_for_a_service_that_somebody_disabled(directory: Path) -> None:
    now = clock.now()
    make(now)
    service("boss", given("admin"))
    identities.disable(Identity.objects.get(service_name="up"), by=ROOT, now=now)
    with pytest.raises(Exception, match="No API token was made: service:up is disabled"):
        make(now)
