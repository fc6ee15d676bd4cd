"""The graph of a task, or of a template, as it is shown: similar steps may be folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from orchestrator.workflows import dag, task_templates
from orchestrator.workflows.models import Step, StepDependency, StepKind, Task, TaskTemplate
from orchestrator.workflows.states import StepState
from orchestrator.workflows.states.steps import FAILED, IN_FLIGHT, SATISFIED

FOLD_FROM = 7
"""From this number on, steps with the same parents and children are shown as one."""

DRAWN_LIMIT = 200
"""Larger graphs are not drawn: nobody could read the picture."""

CROSSED_LIMIT = 2_000
"""Nor are graphs whose edges cross more columns than this, all together."""

COLUMNS_LIMIT = 40
"""The piles of a graph that no other folding makes small enough."""

Edge = tuple[str, str]
"""Parent and child."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One step, or several that stand between the same neighbours."""

    name: str
    kind: str = StepKind.STANDARD
    states: Mapping[StepState, int] = field(default_factory=dict)
    """The number of steps in each state; empty for a step that is not created yet."""
    id: UUID | None = None
    execution_id: UUID | None = None
    """Of a step in flight: its execution."""
    attempts: int = 0
    max_attempts: int = 0
    template_step: str = ""
    count: int = 1

    @property
    def state(self) -> StepState | None:
        """The state of all its steps; None if they are in several, or not created."""
        return next(iter(self.states)) if len(self.states) == 1 else None


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes by name, and each name's parents."""

    nodes: Mapping[str, Node]
    parents: Mapping[str, Sequence[str]]
    is_made: bool = True
    """False if it shows a template's steps, not the steps of a task."""
    tolerant: frozenset[Edge] = frozenset()
    """The edges whose child begins although the parent has failed."""

    @cached_property
    def edges(self) -> list[Edge]:
        """Parent and child."""
        return [(parent, child) for child, above in self.parents.items() for parent in above]

    @cached_property
    def states(self) -> Counter[StepState]:
        """All steps, by their states."""
        total: Counter[StepState] = Counter()
        for node in self.nodes.values():
            total.update(node.states)
        return total

    def waits_for(self, name: str) -> list[str]:
        """The parents that keep a step from beginning; none if it has begun, or ended."""
        if not self.nodes[name].states.keys() & {StepState.PENDING, StepState.WAITING_FOR_RETRY}:
            return []
        return [parent for parent in self.parents[name] if self._holds_back(parent, name)]

    def _holds_back(self, parent: str, child: str) -> bool:
        passing = SATISFIED | FAILED if (parent, child) in self.tolerant else SATISFIED
        node = self.nodes.get(parent)
        return node is not None and bool(node.states.keys() - passing)


def of_task(task: Task) -> Graph:
    """The graph of a task's steps, in two queries; of its template's, until they are created."""
    fields = (
        "id", "name", "kind", "state", "attempts", "max_attempts", "template_step", "execution_id",
    )  # fmt: skip
    rows = Step.objects.filter(task=task).order_by("pk").only(*fields)
    nodes = {
        step.name: Node(
            name=step.name,
            kind=step.kind,
            states={StepState(step.state): 1},
            id=step.pk,
            execution_id=step.execution_id if step.state in IN_FLIGHT else None,
            attempts=step.attempts,
            max_attempts=step.max_attempts,
            template_step=step.template_step,
        )
        for step in rows
    }
    if not nodes:
        return of_template(task.template, environment=task.environment)
    parents: dict[str, list[str]] = {name: [] for name in nodes}
    tolerant = set()
    edges = StepDependency.objects.filter(child__task=task).order_by("pk")
    for child, parent, tolerates in edges.values_list(
        "child__name", "parent__name", "tolerates_failure"
    ):
        # a step that was created between the two queries is shown the next time
        if child in nodes and parent in nodes:
            parents[child].append(parent)
            if tolerates:
                tolerant.add((parent, child))
    return Graph(nodes=nodes, parents=parents, tolerant=frozenset(tolerant))


def of_template(template: TaskTemplate, *, environment: str = "") -> Graph:
    """The graph of a template's steps."""
    definition = task_templates.TemplateDefinition.of(template.definition, environment=environment)
    nodes = {
        step.name: Node(
            name=step.name,
            kind=step.kind,
            max_attempts=step.retry.max_attempts,
            template_step=step.name,
        )
        for step in definition.steps.values()
    }
    return Graph(nodes=nodes, parents=definition.parents, is_made=False)


# --- folding -------------------------------------------------------------------------------------


def piled(graph: Graph) -> Graph:
    """Fold a graph until it can be drawn: similar steps first, then steps in a row, and if nothing
    else helps those at the same distance from the start."""
    shown, size = folded(graph), 1
    while not is_readable(shown):
        before, size = len(shown.nodes), size * 2
        shown = folded(_in_rows(graph, size))
        if len(shown.nodes) == before:  # no longer rows are there
            return _in_columns(graph)
    return shown


def is_readable(graph: Graph) -> bool:
    """Return True if a picture of the graph could be read."""
    if len(graph.nodes) > DRAWN_LIMIT:
        return False
    depths = _depths(graph)
    crossed = (depths[child] - depths[parent] for parent, child in graph.edges if parent in depths)
    return sum(map(abs, crossed)) <= CROSSED_LIMIT


def folded(graph: Graph) -> Graph:
    """Merge each large group of steps with the same parents and children into one node."""
    children = _children(graph)
    crowds: dict[tuple[frozenset[str], frozenset[str]], list[str]] = {}
    for name in graph.nodes:
        place = (frozenset(graph.parents[name]), frozenset(children[name]))
        crowds.setdefault(place, []).append(name)
    return _merged(graph, (crowd for crowd in crowds.values() if len(crowd) >= FOLD_FROM))


def _in_rows(graph: Graph, size: int) -> Graph:
    """Merge steps that follow each other, and have no other neighbours, up to `size` into one."""
    children = _children(graph)
    rows: list[list[str]] = []
    row_of: dict[str, list[str]] = {}
    for name in _in_order(graph):
        above = graph.parents[name]
        row = row_of.get(above[0]) if len(above) == 1 else None
        if row is None or len(row) >= size or row[-1] != above[0] or len(children[above[0]]) > 1:
            row = []
            rows.append(row)
        row.append(name)
        row_of[name] = row
    return _merged(graph, (row for row in rows if len(row) > 1))


def _in_columns(graph: Graph) -> Graph:
    """Merge steps at the same distance from the start, or at nearly the same if they are many."""
    depths = _depths(graph)
    width = -(-(max(depths.values(), default=0) + 1) // COLUMNS_LIMIT)
    columns: dict[int, list[str]] = {}
    for name, depth in depths.items():
        columns.setdefault(depth // width, []).append(name)
    merged = _merged(graph, columns.values())
    # of the edges between columns only those to the nearest say something
    depths = _depths(merged)
    nearest = {
        name: [p for p in above if depths[p] == max(map(depths.__getitem__, above))]
        for name, above in merged.parents.items()
    }
    return Graph(nodes=merged.nodes, parents=nearest, is_made=graph.is_made)


def _merged(graph: Graph, groups: Iterable[Sequence[str]]) -> Graph:
    """The graph with one node for each of these groups."""
    shown_as = dict(graph.nodes)
    for group in groups:
        pile = _together([graph.nodes[name] for name in group])
        shown_as.update(dict.fromkeys(group, pile))
    nodes = {node.name: node for node in shown_as.values()}
    parents: dict[str, dict[str, None]] = {name: {} for name in nodes}
    strict = set()
    for parent, child in graph.edges:
        if parent not in shown_as or shown_as[parent] is shown_as[child]:
            continue
        edge = (shown_as[parent].name, shown_as[child].name)
        parents[edge[1]][edge[0]] = None
        if (parent, child) not in graph.tolerant:
            strict.add(edge)
    edges = {(parent, child) for child, above in parents.items() for parent in above}
    return Graph(
        nodes=nodes,
        parents={name: list(above) for name, above in parents.items()},
        is_made=graph.is_made,
        tolerant=frozenset(edges - strict),
    )


def _together(crowd: Sequence[Node]) -> Node:
    """One node for many. Its name has a character that no step's name may have, so it is unique."""
    if len(crowd) == 1:
        return crowd[0]
    states: Counter[StepState] = Counter()
    for node in crowd:
        states.update(node.states)
    count = sum(node.count for node in crowd)
    alike = {node.template_step for node in crowd}
    first = crowd[0]
    what = (
        first.template_step
        if len(alike) == 1 and first.template_step
        else f"{first.name.partition(' ')[0]} …"
    )
    return Node(
        name=f"{what} ×{count:,}",  # noqa: RUF001 - times
        kind=first.kind if len({node.kind for node in crowd}) == 1 else StepKind.STANDARD,
        states=states,
        template_step=first.template_step if len(alike) == 1 else "",
        count=count,
    )


def _children(graph: Graph) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for parent, child in graph.edges:
        if parent in children:
            children[parent].append(child)
    return children


def _in_order(graph: Graph) -> list[str]:
    """All steps, each after its parents; as they come if they depend on each other."""
    parents = {
        name: [p for p in above if p in graph.nodes] for name, above in graph.parents.items()
    }
    return list(graph.nodes) if dag.cycle(parents) else dag.in_order(parents)


def _depths(graph: Graph) -> dict[str, int]:
    """The longest way from the start to each step."""
    depths: dict[str, int] = {}
    for name in _in_order(graph):
        above = [depths[parent] for parent in graph.parents[name] if parent in depths]
        depths[name] = max(above, default=-1) + 1
    return depths
