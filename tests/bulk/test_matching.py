"""What an order looks for: as many as one order takes, and for no longer than it may."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from orchestrator.bulk import matching
from orchestrator.core.models import Execution
from tests.bulk.play import several
from tests.factories import NOW
from tests.principals import ROOT


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_look_that_takes_too_long_is_given_up(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    several(3)
    monkeypatch.setattr(matching, "SECONDS", 0.1)
    hangs = Execution.objects.extra(where=["pg_sleep(9) IS NOT NULL"])
    wanted = replace(
        matching.EXECUTIONS.wanted("status:open", (), principal=ROOT, now=NOW), rows=hangs
    )
    began = time.monotonic()
    with pytest.raises(matching.LooksTooLong):
        wanted.ids()
    with pytest.raises(matching.LooksTooLong):
        wanted.number(most=10, seconds=0.1)
    assert time.monotonic() - began < 5
    assert replace(wanted, rows=Execution.objects.all()).number(most=10, seconds=10) == 3
