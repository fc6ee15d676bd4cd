"""A graph of steps as SVG, drawn here, so that a page needs no script and no other host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from orchestrator.core import words
from orchestrator.workflows import dag
from orchestrator.workflows.shown.graph import Graph, Node
from orchestrator.workflows.shown.layout import NODE_HEIGHT, NODE_WIDTH, Layout, Point, lay_out

NAME_CHARACTERS = 23
NAMED_MOST = 5
PAD = 14
BAR_WIDTH = NODE_WIDTH - 2 * PAD
LEAST_SHARE = 0.02
"""The smallest part of a bar: one failure in a thousand must be visible."""

Link = Callable[[Node], str]
"""The URL that a node links to; empty for none."""


def picture(graph: Graph, *, link: Link, chosen: str = "") -> SafeString:
    """Draw a graph that is readable. `chosen`: the name of the node that the page is about."""
    layout = lay_out(graph.parents)
    edges = format_html_join(
        "",
        '<path class="{}" d="{}" marker-end="url(#m-arrow)"/>',
        (
            (_edge_class(graph, parent), _path(route))
            for (parent, _), route in layout.routes.items()
        ),
    )
    nodes = format_html_join(
        "",
        "{}",
        (
            (_node(node, graph, layout, link(node), is_chosen=node.name == chosen),)
            for node in graph.nodes.values()
        ),
    )
    return format_html(
        '<svg class="m-graph" width="{}" height="{}" viewBox="0 0 {} {}" '
        'role="group" aria-label="Graph of the steps"><defs><marker id="m-arrow" viewBox="0 0 8 8" '
        'refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8Z"/></marker></defs>{}{}</svg>',
        round(layout.width), round(layout.height), round(layout.width), round(layout.height),
        edges, nodes,
    )  # fmt: skip


def left_out(graph: Graph) -> str:
    """The edges that no picture has, as they close a cycle."""
    if dag.cycle(graph.parents) is None:
        return ""
    backward = lay_out(graph.parents).backward
    return ", ".join(f"{parent} → {child}" for parent, child in sorted(backward))


def said(node: Node, graph: Graph) -> str:
    """A node in words: what a screen reader says of it."""
    if not node.states:
        return f"{node.name}: {node.kind}, not created yet{_after(graph.parents[node.name])}"
    states = ", ".join(f"{count:,} {state}" for state, count in node.states.items())
    waits = _after(graph.waits_for(node.name))
    if node.count > 1:
        return f"{node.name}: {states}{waits}"
    tried = f", {node.attempts} of {node.max_attempts} attempts" if node.attempts else ""
    return f"{node.name}: {node.state}{tried}{waits}"


def _after(parents: Sequence[str]) -> str:
    if not parents:
        return ""
    named = ", ".join(parents[:NAMED_MOST])
    more = len(parents) - NAMED_MOST
    return f", waits for {named}" + (f" and {more:,} more" if more > 0 else "")


def _node(node: Node, graph: Graph, layout: Layout, url: str, *, is_chosen: bool) -> SafeString:
    x, y = layout.corners[node.name]
    kind = _kind(node)
    words_of = said(node, graph)
    box = format_html(
        '<g class="m-node m-node-{}{}{}" transform="translate({} {})"{}>'
        '{}<rect class="m-box" width="{}" height="{}" rx="7"/>{}'
        '<text class="m-name" x="{}" y="22">{}</text>{}</g>',
        kind or "idle",
        "" if node.states else " m-unmade",
        " m-by-hand" if node.state == "resolved_manually" else "",
        round(x, 1), round(y, 1),
        "" if url else format_html(' role="img" aria-label="{}"', words_of),
        _shadow(node), NODE_WIDTH, NODE_HEIGHT, _stripe(node), PAD,
        _cut(node.name), _bar(node) if node.count > 1 and node.states else _second_line(node),
    )  # fmt: skip
    if not url:
        return box
    current = SafeString(' aria-current="true"') if is_chosen else ""
    return format_html('<a href="{}" aria-label="{}"{}>{}</a>', url, words_of, current, box)


def _second_line(node: Node) -> SafeString:
    tried = f"{node.attempts}/{node.max_attempts}" if node.attempts else ""
    return format_html(
        '<text class="m-state" x="{}" y="41">{}</text><text class="m-state" x="{}" y="41" '
        'text-anchor="end">{}</text>',
        PAD,
        node.state or f"up to {node.max_attempts} attempts",
        NODE_WIDTH - PAD,
        tried if node.states else "",
    )


def _bar(node: Node) -> SafeString:
    """A bar of the states of a crowd."""
    shares = [max(count / node.count, LEAST_SHARE) for count in node.states.values()]
    widths = [BAR_WIDTH * share / sum(shares) for share in shares]
    lefts = [PAD + start for start in accumulate([0.0, *widths[:-1]])]
    return format_html_join(
        "",
        '<rect class="m-part m-part-{}" x="{}" y="33" width="{}" height="9"/>',
        (
            (words.kind_of(state) or "idle", round(left, 1), round(width, 1))
            for state, left, width in zip(node.states, lefts, widths, strict=True)
        ),
    )


def _shadow(node: Node) -> SafeString | str:
    """A second box behind the first, so that a crowd looks like a pile."""
    if node.count == 1:
        return ""
    return format_html(
        '<rect class="m-box m-pile" x="5" y="5" width="{}" height="{}" rx="7"/>',
        NODE_WIDTH,
        NODE_HEIGHT,
    )


def _stripe(node: Node) -> SafeString:
    """The kind of a step, unless it is a standard one."""
    if node.kind == "standard":
        return SafeString("")
    return format_html(
        '<text class="m-kind" x="{}" y="-4">{}</text>', PAD, node.kind.replace("_", " ")
    )


def _kind(node: Node) -> str:
    """The colour: that of the state, or of the worst state of a crowd."""
    if node.state is not None:
        return words.kind_of(node.state)
    kinds = {words.kind_of(state) for state in node.states}
    return next((k for k in ("danger", "warning", "primary", "info") if k in kinds), "")


def _edge_class(graph: Graph, parent: str) -> str:
    """The CSS classes of an edge: it is open if its parent is satisfied."""
    kinds = {words.kind_of(state) for state in graph.nodes[parent].states}
    return "m-way m-way-open" if kinds == {"success"} else "m-way"


def _path(route: Sequence[Point]) -> str:
    """An SVG path: curves between columns, straight lines through them."""
    parts = [f"M{route[0][0]:.1f} {route[0][1]:.1f}"]
    for number, ((x, y), (to_x, to_y)) in enumerate(pairwise(route)):
        if number % 2:
            parts.append(f"H{to_x:.1f}")
        else:
            middle = (x + to_x) / 2
            parts.append(f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
    return "".join(parts)


def _cut(name: str) -> str:
    """Cut the middle out of a long name: batch workers differ at the end of their names."""
    if len(name) <= NAME_CHARACTERS:
        return name
    half = NAME_CHARACTERS // 2
    return f"{name[:half]}…{name[-half:]}"
