"""The demo's play, where something else comes before its script."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.drills.demo.play import KILLED, STAYS, STOPPED, Loss, Play, Stuck
from orchestrator.drills.supervisor import EXIT_DECLARED_LOST, Child, Death, NeverStarts, Service

pytestmark = pytest.mark.django_db


def play(*dead: str) -> Play:
    deaths = [Death(name, EXIT_DECLARED_LOST, None, "worker gives up") for name in dead]
    supervisor: Any = SimpleNamespace(look=lambda: deaths)
    return Play(SimpleNamespace(paths=[], size=0), supervisor)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [KILLED, STOPPED])
def test_worker_that_is_lost_before_its_turn_ends_the_demo_at_once(name: str) -> None:
    with pytest.raises(Stuck, match=f"{name} was lost before .*declared lost.*run it again"):
        play(name).look()


def test_worker_that_cannot_start_ends_the_demo_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "w2.log"
    log.write_text("OSError: no /dev/shm\n")
    child = Child(Service(name=KILLED, command=[], restarts=False), log)
    child.started_at = time.monotonic()
    death = child.note_death(1)
    supervisor: Any = SimpleNamespace(look=lambda: [death], children={KILLED: child})
    begun = Play(SimpleNamespace(paths=[], size=0), supervisor)  # type: ignore[arg-type]
    with pytest.raises(NeverStarts, match=r"w2 died at its start \(exit 1\)(.|\n)*no /dev/shm"):
        begun.look()


def test_worker_that_was_taken_away_may_die_and_so_may_the_one_that_stays() -> None:
    lost = play(STOPPED)
    lost.losses[STOPPED] = Loss("SIGSTOP", 0.0)
    lost.look()
    assert lost.happenings == []
    others = play(STAYS)
    others.look()
    assert [happening.style for happening in others.happenings] == ["red"]
