"""Graphs: cycles are found and named, ancestors are complete, orders are right."""

from __future__ import annotations

from graphlib import CycleError
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.workflows import dag

NAMES = st.integers(0, 8).map("s{}".format)
GRAPHS = st.dictionaries(NAMES, st.sets(NAMES, max_size=4), max_size=9)


@given(GRAPHS)
def test_cycle_is_one_and_is_found_if_there_is_one(parents: dict[str, set[str]]) -> None:
    found = dag.cycle(parents)
    is_cyclic = any(name in dag.ancestors(parents, name) for name in parents)
    assert (found is not None) == is_cyclic
    if found:
        assert found[0] == found[-1]
        assert all(before in parents[after] for before, after in pairwise(found))


@given(GRAPHS)
def test_order_has_every_name_after_its_parents(parents: dict[str, set[str]]) -> None:
    if dag.cycle(parents):
        with pytest.raises(CycleError):
            dag.in_order(parents)
        return
    order = dag.in_order(parents)
    places = {name: place for place, name in enumerate(order)}
    assert all(places[above] < places[name] for name, each in parents.items() for above in each)
    for name in parents:
        further = (dag.ancestors(parents, parent) for parent in parents[name])
        assert dag.ancestors(parents, name) == set(parents[name]).union(*further)


def test_long_chain_is_no_recursion() -> None:
    parents = {f"s{n}": [f"s{n - 1}"] for n in range(1, 5_000)}
    assert len(dag.ancestors(parents, "s4999")) == 4_999
    assert dag.cycle(parents) is None
    assert dag.described(dag.cycle(parents | {"s0": ["s4999"]}) or []).count(" -> ") == 5_000
