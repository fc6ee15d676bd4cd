"""How many messages a keeper takes ahead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.queues.gates import windows
from orchestrator.queues.models import Gate, Keeper
from tests.factories import NOW, make_worker, seconds

MakeGate = Callable[..., Gate]


def test_slots_are_those_of_fresh_workers_that_serve_the_queue(make_gate: MakeGate) -> None:
    make_worker("w1", capacity=8, queues={"orders": 4, "orders:retry": 1})
    make_worker("w2", capacity=2, queues={"orders": None, "other": 1})
    make_worker("default", capacity=8)
    make_worker("late", capacity=8, queues={"orders": 8}, now=NOW - seconds(3_600))
    found = windows.slots(["orders", "other", "nobody"], now=NOW)
    assert found == {"orders": 5 + 2, "other": 1, "nobody": 0}


@pytest.mark.parametrize(
    ("slots", "buffer", "keepers", "prefetch"),
    [
        (4, 0, 1, 4),
        (4, 1, 1, 5),
        (4, 100, 2, 52),
        (0, 0, 1, 1),
        (5, 0, 2, 3),
        (0, 70_000, 1, 70_000),
    ],
)
def test_prefetch_is_slots_and_buffer_shared_by_the_keepers(
    make_gate: MakeGate, slots: int, buffer: int, keepers: int, prefetch: int
) -> None:
    gate = make_gate(queue={"prefetch_buffer": buffer})
    assert windows.prefetch(gate, slots=slots, keepers=keepers, batch_size=100) == prefetch


def test_custody_of_the_row_takes_a_batch(make_gate: MakeGate) -> None:
    gate = make_gate(custody="row", queue={"prefetch_buffer": 5})
    assert windows.prefetch(gate, slots=2, keepers=3, batch_size=100) == 100


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [(0, []), (1, [1]), (65_535, [65_535]), (70_000, [65_535, 4_465]), (131_070, [65_535] * 2)],
)
def test_prefetch_beyond_what_amqp_can_say_is_split(wanted: int, parts: list[int]) -> None:
    assert windows.split(wanted) == parts


@pytest.mark.parametrize(
    ("present", "wanted", "is_renewed"),
    [(5, 5, False), (0, 1, True), (1, 2, True), (5, 0, True), (100, 110, False), (100, 125, True)],
)
def test_consumer_is_renewed_only_for_a_difference_that_counts(
    present: int, wanted: int, is_renewed: bool
) -> None:
    assert windows.is_to_be_renewed(present, wanted) is is_renewed


def test_keepers_that_were_not_seen_have_no_part(make_gate: MakeGate) -> None:
    for name, age in (("e1", 0), ("e2", 10), ("e3", 20)):
        Keeper.objects.create(name=name, broker="default", seen_at=NOW - seconds(age))
    Keeper.objects.create(name="e1", broker="other", seen_at=NOW)
    assert windows.keepers("default", now=NOW) == 2
    assert windows.keepers("nobody", now=NOW) == 1
