"""Who is alone waits for the others, and who comes later waits for it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests import alone

SECONDS = 30
MOMENT = 0.2


class Visit(threading.Thread):
    """Somebody who enters, and leaves when told."""

    def __init__(self, *, is_alone: bool = False) -> None:
        super().__init__(daemon=True)
        self.is_alone = is_alone
        self.is_inside = threading.Event()
        self.may_leave = threading.Event()
        self.start()

    def run(self) -> None:
        with alone.entered(is_alone=self.is_alone):
            self.is_inside.set()
            self.may_leave.wait(SECONDS)

    def gets_in(self) -> bool:
        return self.is_inside.wait(SECONDS)

    def is_kept_out(self) -> bool:
        return not self.is_inside.wait(MOMENT)

    def leave(self) -> None:
        self.may_leave.set()
        self.join(SECONDS)


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATE", "ROOM"):
        (tmp_path / name).touch()
        monkeypatch.setattr(alone, name, tmp_path / name)


def test_who_is_alone_waits_for_the_others_and_later_ones_for_it() -> None:
    others = [Visit(), Visit()]
    assert all(each.gets_in() for each in others), "they share the room"
    one = Visit(is_alone=True)
    assert one.is_kept_out()
    later = Visit()
    assert later.is_kept_out(), "else who is alone might wait for ever"
    for each in others:
        each.leave()
    assert one.gets_in()
    assert later.is_kept_out()
    one.leave()
    assert later.gets_in()
    later.leave()
