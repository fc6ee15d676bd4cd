"""Graphs in Mermaid's language, which documents, issue trackers and notebooks draw."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.core import words
from orchestrator.core.words import Kind
from orchestrator.workflows.shown.graph import Graph, Node
from orchestrator.workflows.states import StepState

CONTENT_TYPE = "text/vnd.mermaid"

SHAPES = {"decision": ("{{", "}}"), "batchable": ("[[", "]]")}
COLOURS = {
    Kind.SUCCESS: "fill:#dcfce7,stroke:#16a34a,color:#14532d",
    Kind.DANGER: "fill:#fee2e2,stroke:#dc2626,color:#7f1d1d",
    Kind.WARNING: "fill:#ffedd5,stroke:#ea580c,color:#7c2d12",
    Kind.PRIMARY: "fill:#dbeafe,stroke:#2563eb,color:#1e3a8a",
    Kind.INFO: "fill:#e0f2fe,stroke:#0284c7,color:#0c4a6e",
    Kind.PLAIN: "fill:#ffffff,stroke:#94a3b8,color:#334155",
}


def written(graph: Graph) -> str:
    """Write a graph as Mermaid, left to right. Fold it first: Mermaid draws at most 500 edges."""
    ids = {name: f"s{number}" for number, name in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for name, node in graph.nodes.items():
        start, end = SHAPES.get(node.kind, ("(", ")"))
        state = f":::{node.state}" if node.state else ""
        lines.append(f'    {ids[name]}{start}"{_label(node)}"{end}{state}')
    lines += [f"    {ids[parent]} --> {ids[child]}" for parent, child in graph.edges]
    shown = {node.state for node in graph.nodes.values() if node.state}
    lines += [f"    classDef {s} {COLOURS[words.kind_of(s)]}" for s in StepState if s in shown]
    return "\n".join(lines) + "\n"


def _label(node: Node) -> str:
    return "<br/>".join(map(_escaped, _lines_of(node)))


def _lines_of(node: Node) -> Iterator[str]:
    yield node.name
    if node.count > 1 or node.state is None:
        if node.states:
            yield ", ".join(f"{count:,} {state}" for state, count in node.states.items())
    else:
        tried = f" {node.attempts}/{node.max_attempts}" if node.attempts > 1 else ""
        yield f"{node.state}{tried}"


def _escaped(text: str) -> str:
    """Escape for Mermaid, which reads code points between `#` and `;`."""
    return re.sub(r"[^\w ×….,:/-]", lambda match: f"#{ord(match[0])};", text)  # noqa: RUF001
