"""The graph of a task, or of a template, as it is shown: similar steps may be folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from orchestrator.workflows import task_templates
from orchestrator.workflows.models import Step, StepDependency, StepKind, Task, TaskTemplate
from orchestrator.workflows.states import StepState

FOLD_FROM = 7
"""From this number on, steps with the same parents and children are shown as one."""

DRAWN_LIMIT = 200
"""Larger graphs are not drawn: nobody could read the picture."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One step, or several that stand between the same neighbours."""

    name: str
    kind: str = StepKind.STANDARD
    states: Mapping[StepState, int] = field(default_factory=dict)
    """The number of steps in each state; empty for a step that is not created yet."""
    id: UUID | None = None
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

    @cached_property
    def edges(self) -> list[tuple[str, str]]:
        """Parent and child."""
        return [(parent, child) for child, above in self.parents.items() for parent in above]

    @cached_property
    def states(self) -> Counter[StepState]:
        """All steps, by their states."""
        total: Counter[StepState] = Counter()
        for node in self.nodes.values():
            total.update(node.states)
        return total


def of_task(task: Task) -> Graph:
    """The graph of a task's steps, in two queries; of its template's, until they are created."""
    fields = ("id", "name", "kind", "state", "attempts", "max_attempts", "template_step")
    rows = Step.objects.filter(task=task).order_by("pk").only(*fields)
    nodes = {
        step.name: Node(
            name=step.name,
            kind=step.kind,
            states={StepState(step.state): 1},
            id=step.pk,
            attempts=step.attempts,
            max_attempts=step.max_attempts,
            template_step=step.template_step,
        )
        for step in rows
    }
    if not nodes:
        return of_template(task.template, environment=task.environment)
    parents: dict[str, list[str]] = {name: [] for name in nodes}
    edges = StepDependency.objects.filter(child__task=task).order_by("pk")
    for child, parent in edges.values_list("child__name", "parent__name"):
        # a step that was created between the two queries is shown the next time
        if child in nodes and parent in nodes:
            parents[child].append(parent)
    return Graph(nodes=nodes, parents=parents)


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


def folded(graph: Graph) -> Graph:
    """Merge each large group of steps with the same parents and children into one node."""
    children: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for parent, child in graph.edges:
        if parent in children:
            children[parent].append(child)
    crowds: dict[tuple[frozenset[str], frozenset[str]], list[Node]] = {}
    for name, node in graph.nodes.items():
        place = (frozenset(graph.parents[name]), frozenset(children[name]))
        crowds.setdefault(place, []).append(node)
    shown_as: dict[str, Node] = {}
    for crowd in crowds.values():
        crowd_node = _together(crowd) if len(crowd) >= FOLD_FROM else None
        shown_as.update({node.name: crowd_node or node for node in crowd})
    nodes = {node.name: node for node in shown_as.values()}
    parents: dict[str, dict[str, None]] = {name: {} for name in nodes}
    for parent, child in graph.edges:
        if parent in shown_as:
            parents[shown_as[child].name][shown_as[parent].name] = None
    return Graph(
        nodes=nodes,
        parents={name: list(above) for name, above in parents.items()},
        is_made=graph.is_made,
    )


def _together(crowd: Sequence[Node]) -> Node:
    """One node for many. Its name has a character that no step's name may have, so it is unique."""
    states: Counter[StepState] = Counter()
    for node in crowd:
        states.update(node.states)
    alike = {node.template_step for node in crowd}
    first = crowd[0]
    what = first.template_step if len(alike) == 1 else f"{first.name} …"
    return Node(
        name=f"{what} ×{len(crowd):,}",  # noqa: RUF001 - times
        kind=first.kind if len({node.kind for node in crowd}) == 1 else StepKind.STANDARD,
        states=states,
        template_step=first.template_step if len(alike) == 1 else "",
        count=len(crowd),
    )
