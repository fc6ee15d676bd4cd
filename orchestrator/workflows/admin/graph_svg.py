"""A graph of steps as SVG, drawn here, so that the page needs no script and no other host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from orchestrator.core import words
from orchestrator.core.admin import render
from orchestrator.workflows.shown.graph import DRAWN_LIMIT, Graph, Node
from orchestrator.workflows.shown.layout import NODE_HEIGHT, NODE_WIDTH, Layout, Point, lay_out
from orchestrator.workflows.states import StepState

NAME_CHARACTERS = 23
PAD = 14
BAR_WIDTH = NODE_WIDTH - 2 * PAD
LEAST_SHARE = 0.02
"""The smallest part of a bar: one failure in a thousand must be visible."""

Link = Callable[[Node], str]
"""The URL that a node links to; empty for none."""


def drawn(graph: Graph, *, link: Link) -> SafeString:
    """Draw the graph in a box that scrolls, with a legend."""
    if not graph.nodes:
        return format_html('<p class="m-muted">{}</p>', "It has no steps.")
    if len(graph.nodes) > DRAWN_LIMIT:
        return format_html(
            '<p class="m-muted">{} steps in different positions are too many for a picture.</p>',
            f"{len(graph.nodes):,}",
        )
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
        "", "{}", ((_node(node, layout, link(node)),) for node in graph.nodes.values())
    )
    return format_html(
        '<div class="m-scroll"><svg class="m-graph" width="{}" height="{}" viewBox="0 0 {} {}" '
        'role="group" aria-label="Graph of the steps"><defs><marker id="m-arrow" viewBox="0 0 8 8" '
        'refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8Z"/></marker></defs>{}{}</svg></div>{}',
        round(layout.width), round(layout.height), round(layout.width), round(layout.height),
        edges, nodes, _legend(graph, layout),
    )  # fmt: skip


def _node(node: Node, layout: Layout, url: str) -> SafeString:
    x, y = layout.corners[node.name]
    kind = _kind(node)
    box = format_html(
        '<g class="m-node m-node-{}{}{}" transform="translate({} {})"><title>{}</title>'
        '{}<rect class="m-box" width="{}" height="{}" rx="7"/>{}'
        '<text class="m-name" x="{}" y="22">{}</text>{}</g>',
        kind or "idle",
        "" if node.states else " m-unmade",
        " m-by-hand" if node.state == "resolved_manually" else "",
        round(x, 1), round(y, 1),
        _tooltip(node), _shadow(node), NODE_WIDTH, NODE_HEIGHT, _stripe(node), PAD,
        _cut(node.name), _bar(node) if node.count > 1 and node.states else _second_line(node),
    )  # fmt: skip
    return format_html('<a href="{}">{}</a>', url, box) if url else box


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


def _legend(graph: Graph, layout: Layout) -> SafeString:
    """The number of steps in each state, and the edges that are not drawn."""
    counts = format_html_join(" ", '<span class="whitespace-nowrap">{} {}</span>', _counts(graph))
    left_out = ", ".join(f"{parent} → {child}" for parent, child in sorted(layout.backward))
    warning = (
        format_html('<p class="m-overdue">Not drawn, because they close a cycle: {}</p>', left_out)
        if left_out
        else ""
    )
    legend = format_html('<p class="m-legend">{}</p>', counts) if counts else ""
    return format_html("{}{}", legend, warning)


def _counts(graph: Graph) -> Iterator[tuple[SafeString, str]]:
    for state in StepState:
        if count := graph.states.get(state, 0):
            yield render.state_badge(state), f"{count:,}"


def _tooltip(node: Node) -> str:
    if not node.states:
        return f"{node.name}: {node.kind}, not created yet"
    states = ", ".join(f"{count:,} {state}" for state, count in node.states.items())
    if node.count > 1:
        return f"{node.name}: {states}"
    return f"{node.name}: {states}, {node.attempts} of {node.max_attempts} attempts"


def _cut(name: str) -> str:
    """Cut the middle out of a long name: batch workers differ at the end of their names."""
    if len(name) <= NAME_CHARACTERS:
        return name
    half = NAME_CHARACTERS // 2
    return f"{name[:half]}…{name[-half:]}"
