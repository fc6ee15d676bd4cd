"""The graph of steps as a box of a page, with a legend."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from orchestrator.core.admin import render
from orchestrator.workflows.shown import graph_svg
from orchestrator.workflows.shown.graph import DRAWN_LIMIT, Graph
from orchestrator.workflows.states import StepState


def drawn(graph: Graph, *, link: graph_svg.Link) -> SafeString:
    """Draw the graph in a box that scrolls, with a legend."""
    if not graph.nodes:
        return format_html('<p class="m-muted">{}</p>', "It has no steps.")
    if len(graph.nodes) > DRAWN_LIMIT:
        return format_html(
            '<p class="m-muted">{} steps in different positions are too many for a picture.</p>',
            f"{len(graph.nodes):,}",
        )
    picture = graph_svg.picture(graph, link=link)
    return format_html('<div class="m-scroll">{}</div>{}', picture, _legend(graph))


def _legend(graph: Graph) -> SafeString:
    """The number of steps in each state, and the edges that are not drawn."""
    counts = format_html_join(" ", '<span class="whitespace-nowrap">{} {}</span>', _counts(graph))
    missing = graph_svg.left_out(graph)
    warning = (
        format_html('<p class="m-overdue">Not drawn, because they close a cycle: {}</p>', missing)
        if missing
        else ""
    )
    legend = format_html('<p class="m-legend">{}</p>', counts) if counts else ""
    return format_html("{}{}", legend, warning)


def _counts(graph: Graph) -> Iterator[tuple[SafeString, str]]:
    for state in StepState:
        if count := graph.states.get(state, 0):
            yield render.state_badge(state), f"{count:,}"
