"""Graphs as they are shown: folded, laid out, written as Mermaid."""

from __future__ import annotations

import random
import time
from itertools import combinations, pairwise

import pytest

from orchestrator.workflows.shown import mermaid
from orchestrator.workflows.shown.graph import (
    DRAWN_LIMIT,
    FOLD_FROM,
    Graph,
    Node,
    folded,
    is_readable,
    piled,
)
from orchestrator.workflows.shown.layout import NODE_HEIGHT, NODE_WIDTH, Layout, lay_out
from orchestrator.workflows.states import StepState

DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


def assert_sound(parents: dict[str, list[str]], layout: Layout) -> None:
    """What holds for every picture: all is in it, nothing overlaps, every edge leads right."""
    assert layout.corners.keys() == parents.keys()
    boxes = list(layout.corners.values())
    for x, y in boxes:
        assert 0 <= x <= layout.width - NODE_WIDTH
        assert 0 <= y <= layout.height - NODE_HEIGHT + 0.01
    for (x, y), (other_x, other_y) in combinations(boxes, 2):
        assert x != other_x or abs(y - other_y) >= NODE_HEIGHT - 0.01
    edges = {(p, child) for child, above in parents.items() for p in above if p in parents}
    assert layout.routes.keys() == edges - layout.backward
    for (parent, child), route in layout.routes.items():
        xs = [x for x, _ in route]
        assert all(left < right for left, right in pairwise(xs))
        assert xs[0] == layout.corners[parent][0] + NODE_WIDTH
        assert xs[-1] == layout.corners[child][0]


@pytest.mark.parametrize(
    "parents",
    [
        {},
        {"a": []},
        DIAMOND,
        {"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"]},  # an edge over two columns
        {"a": ["gone"], "b": ["a"]},
        {"a": [], **{f"w{n}": ["a"] for n in range(40)}, "z": [f"w{n}" for n in range(40)]},
    ],
)
def test_layout_has_no_overlaps_and_every_edge_leads_forwards(parents) -> None:
    layout = lay_out(parents)
    assert_sound(parents, layout)
    assert not layout.backward


def test_diamond_is_symmetric() -> None:
    corners = lay_out(DIAMOND).corners
    assert corners["a"][1] == pytest.approx(corners["d"][1])
    assert corners["b"][1] + corners["c"][1] == pytest.approx(2 * corners["a"][1])


def test_edges_do_not_cross_where_they_need_not() -> None:
    # each of the second column has the parent opposite, given in the wrong order
    parents = {"a": [], "b": [], "c": [], "x": ["c"], "y": ["b"], "z": ["a"]}
    corners = lay_out(parents).corners
    for parent, child in (("c", "x"), ("b", "y"), ("a", "z")):
        assert corners[parent][1] == pytest.approx(corners[child][1])


def test_a_cycle_is_drawn_without_the_edge_that_closes_it() -> None:
    parents = {"start": [], "a": ["start", "c"], "b": ["a"], "c": ["b"], "end": ["c"]}
    layout = lay_out(parents)
    assert layout.backward
    assert_sound(parents, layout)


def test_any_graph_is_laid_out_soon() -> None:
    chance = random.Random(7)
    names = [f"s{n}" for n in range(200)]
    parents = {
        name: chance.sample(names[:number], k=min(number, chance.randrange(4)))
        for number, name in enumerate(names)
    }
    began = time.process_time()
    assert_sound(parents, lay_out(parents))
    assert time.process_time() - began < 5


# --- folding -------------------------------------------------------------------------------------


def batch(workers: int, **states: int) -> Graph:
    nodes = {"split": Node(name="split", states={StepState.COMPLETE: 1}, kind="batchable")}
    left = [state for state, count in states.items() for _ in range(count)]
    for number in range(workers):
        name = f"row_{number + 1:03}"
        nodes[name] = Node(
            name=name,
            kind="batch_worker",
            states={StepState(left[number]): 1},
            template_step="row",
        )
    nodes["sum"] = Node(name="sum", states={StepState.PENDING: 1}, attempts=2, max_attempts=3)
    parents = {name: ["split"] for name in nodes} | {"split": []}
    parents["sum"] = [name for name in nodes if name.startswith("row")]
    return Graph(nodes=nodes, parents=parents)


def test_crowd_is_folded_into_one_node_that_counts_its_states() -> None:
    shown = folded(batch(1_000, complete=900, error=100))
    crowd = shown.nodes["row ×1,000"]  # noqa: RUF001
    assert list(shown.nodes) == ["split", crowd.name, "sum"]
    assert crowd.states == {StepState.COMPLETE: 900, StepState.ERROR: 100}
    assert (crowd.state, crowd.count, crowd.kind) == (None, 1_000, "batch_worker")
    assert shown.edges == [("split", crowd.name), (crowd.name, "sum")]
    assert sum(shown.states.values()) == 1_002


def test_few_are_shown_one_by_one() -> None:
    few = batch(FOLD_FROM - 1, complete=FOLD_FROM - 1)
    assert folded(few).nodes == few.nodes


# --- Mermaid -------------------------------------------------------------------------------------


def test_mermaid_has_nodes_edges_states_and_attempts() -> None:
    text = mermaid.written(folded(batch(9, complete=9)))
    assert text.splitlines() == [
        "flowchart LR",
        '    s0[["split<br/>complete"]]:::complete',
        '    s1("row ×9<br/>9 complete"):::complete',  # noqa: RUF001
        '    s2("sum<br/>pending 2/3"):::pending',
        "    s0 --> s1",
        "    s1 --> s2",
        "    classDef pending fill:#ffffff,stroke:#94a3b8,color:#334155",
        "    classDef complete fill:#dcfce7,stroke:#16a34a,color:#14532d",
    ]


def test_mermaid_lets_no_name_break_out() -> None:
    name = '"]; click s0 "javascript:alert(1)"\n<b>'
    text = mermaid.written(Graph(nodes={name: Node(name=name)}, parents={name: []}))
    (line,) = text.splitlines()[1:]
    assert line.count('"') == 2
    assert "<b>" not in line


# --- piles ---------------------------------------------------------------------------------------


def chain(length: int) -> Graph:
    names = [f"s{number}" for number in range(length)]
    nodes = {name: Node(name=name, states={StepState.COMPLETE: 1}) for name in names}
    return Graph(nodes=nodes, parents={n: names[max(0, at - 1) : at] for at, n in enumerate(names)})


def test_steps_in_a_row_are_piled_no_further_than_needed() -> None:
    assert piled(chain(DRAWN_LIMIT)).nodes.keys() == chain(DRAWN_LIMIT).nodes.keys()
    shown = piled(chain(1_000))
    assert len(shown.nodes) == 125
    assert {node.count for node in shown.nodes.values()} == {8}
    assert is_readable(shown)
    assert sum(shown.states.values()) == 1_000


def test_any_graph_has_a_picture_with_all_of_its_steps_and_every_edge_forwards() -> None:
    chance = random.Random(7)
    names = [f"s{number}" for number in range(1_000)]
    nodes = {name: Node(name=name, states={StepState.COMPLETE: 1}) for name in names}
    parents = {n: chance.sample(names[:at], k=min(at, 3)) for at, n in enumerate(names)}
    shown = piled(Graph(nodes=nodes, parents=parents))
    assert is_readable(shown)
    assert sum(node.count for node in shown.nodes.values()) == 1_000
    layout = lay_out(shown.parents)
    assert_sound({name: list(above) for name, above in shown.parents.items()}, layout)
    assert not layout.backward


def test_a_step_waits_for_what_holds_it_back_and_not_for_failures_that_it_tolerates() -> None:
    states = {"a": StepState.COMPLETE, "b": StepState.ERROR, "c": StepState.PENDING}
    nodes = {name: Node(name=name, states={state: 1}) for name, state in states.items()}
    parents = {"a": [], "b": [], "c": ["a", "b"]}
    assert Graph(nodes=nodes, parents=parents).waits_for("c") == ["b"]
    tolerant = Graph(nodes=nodes, parents=parents, tolerant=frozenset({("b", "c")}))
    assert tolerant.waits_for("c") == []
    assert tolerant.waits_for("b") == []
