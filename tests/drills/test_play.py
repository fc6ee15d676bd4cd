"""The demo's play, where something else comes before its script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.drills.demo.play import KILLED, STAYS, STOPPED, Loss, Play, Stuck
from orchestrator.drills.supervisor import EXIT_DECLARED_LOST, Death

pytestmark = pytest.mark.django_db


def play(*dead: str) -> Play:
    deaths = [Death(name, EXIT_DECLARED_LOST, None, "worker gives up") for name in dead]
    supervisor: Any = SimpleNamespace(look=lambda: deaths)
    return Play(SimpleNamespace(paths=[], size=0), supervisor)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [KILLED, STOPPED])
def test_worker_that_is_lost_before_its_turn_ends_the_demo_at_once(name: str) -> None:
    with pytest.raises(Stuck, match=f"{name} was lost before .*declared lost.*run it again"):
        play(name).look()


def test_worker_that_was_taken_away_may_die_and_so_may_the_one_that_stays() -> None:
    lost = play(STOPPED)
    lost.losses[STOPPED] = Loss("SIGSTOP", 0.0)
    lost.look()
    assert lost.happenings == []
    others = play(STAYS)
    others.look()
    assert [happening.style for happening in others.happenings] == ["red"]
