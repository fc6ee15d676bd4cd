"""Times that touch, overlap, and are taken from each other; and when a worker was fit."""

from __future__ import annotations

from tests.chaos import effects, spans
from tests.chaos.effects import RECOVERY_SECONDS
from tests.chaos.facts import Life
from tests.chaos.stories import fault, truth


def test_spans_that_touch_are_one() -> None:
    assert spans.union([(3, 4), (1, 2), (2, 3), (6, 6)]) == [(1, 4)]


def test_what_is_taken_away_leaves_what_is_around_it() -> None:
    assert spans.without([(0, 10)], [(2, 3), (5, 6)]) == [(0, 2), (3, 5), (6, 10)]
    assert spans.without([(0, 10)], [(-1, 11)]) == []
    assert spans.without([(0, 4), (6, 9)], [(3, 7), (8, 20)]) == [(0, 3), (7, 8)]
    assert spans.without([(5, 6)], [(1, 2), (7, 8)]) == [(5, 6)]
    assert spans.without([(0, 10)], []) == [(0, 10)]


def test_seconds_are_counted_once() -> None:
    assert spans.seconds_in([(0, 4), (2, 6), (8, 9)], 1, 8.5) == 5.5


def test_worker_is_fit_while_it_is_up_and_nothing_of_it_is_broken() -> None:
    evidence = truth(
        lives=[Life("w1", 0.0, 100.0, -9), Life("w2", 50.0)],
        faults=[fault("freeze worker", 20.0, 5.0, "w1"), fault("kill beat", 60.0)],
    )

    assert effects.fit(evidence, "w1") == [(0.0, 20.0), (25.0 + RECOVERY_SECONDS, 100.0)]
    assert effects.fit(evidence, "w2") == [(50.0, spans.FOREVER)]
    assert effects.fit(evidence, "ghost") == []
    assert effects.some_fit(evidence) == [
        (0.0, 20.0),
        (25.0 + RECOVERY_SECONDS, spans.FOREVER),
    ]
