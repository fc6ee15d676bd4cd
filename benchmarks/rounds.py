"""Taking turns: A B B A, so that what disturbs the machine disturbs all sides alike.

Each goes first in turn: what goes first may meet what the last run left to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from benchmarks.samples import Sample, percentile
from benchmarks.stage import Party


def per_second(
    parties: Mapping[str, Party],
    count: int | Mapping[str, int],
    *,
    rounds: int,
    bulk: bool = True,
    clients: int = 1,
) -> Iterator[Sample]:
    """Throughput of each party in each round, after a warm-up of all.

    `count` may differ by party, where one is so much slower that it would take the whole time;
    each is long enough for a rate.
    """
    for party in parties.values():
        party.warm_up(clients=clients)
    turn = deque(parties.items())
    for number in range(1, rounds + 1):
        for subject, party in turn:
            size = count if isinstance(count, int) else count[subject]
            value = party.per_second(size, bulk=bulk, clients=clients)
            yield Sample(subject, number, value, "executions/s")
        turn.rotate(-1)


def one_at_a_time(
    parties: Mapping[str, Party], what: str, *, count: int, rounds: int
) -> Iterator[Sample]:
    """Median and p99 of each party's times in each round, of what it measures one at a time."""
    for party in parties.values():
        party.warm_up()
    for number in range(1, rounds + 1):
        for subject, party in parties.items():
            with party.turn():
                party.begin()
                times_ms = party.remote.call(what, count=count)
            party.settle(count)
            yield Sample(f"{subject}, p50", number, percentile(times_ms, 50), "ms")
            yield Sample(f"{subject}, p99", number, percentile(times_ms, 99), "ms")
