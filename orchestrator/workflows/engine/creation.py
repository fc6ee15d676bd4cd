"""Creation of steps and the edges between them: initially, by a decision, for a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from orchestrator.workflows import dag
from orchestrator.workflows.engine.outcomes import Batches, Branch
from orchestrator.workflows.engine.turn import Turn
from orchestrator.workflows.models import Step, StepDependency
from orchestrator.workflows.task_templates.definitions import (
    BATCH_WORKER,
    BATCHABLE,
    CONTINUE_ON_FAILURE,
    DECISION,
    StepDefinition,
    TemplateDefinition,
)


@dataclass
class Created:
    """The steps that a task has, by their names in the template."""

    definition: TemplateDefinition
    rows: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    new: set[str] = field(default_factory=set)
    """Template names of the steps that were created now."""

    def __contains__(self, name: str) -> bool:
        return bool(self.rows.get(name))

    def available(self, name: str) -> bool:
        """Return True if the step exists, or will exist without a decision."""
        if self.definition.steps[name].kind == BATCH_WORKER:
            return self.definition.batchable_of(name) in self
        return name in self

    def parents_of(self, name: str) -> Iterator[str]:
        """The steps that a step waits for: its dependencies, and instead of a missing one the step
        that may still create it."""
        for parent in self.definition.steps[name].parents:
            yield from [parent] if parent in self else self._creators(parent)

    def _creators(self, name: str) -> Iterator[str]:
        for parent in self.definition.steps[name].parents:
            creates = self.definition.steps[parent].kind in (DECISION, BATCHABLE)
            if parent in self:
                yield from [parent] if creates else []
            else:
                yield from self._creators(parent)


def create_initial(turn: Turn) -> None:
    """Create the steps that do not depend on a decision or a batch."""
    definition = turn.definition
    created = Created(definition)
    names = [name for name in definition.steps if name not in definition.conditional]
    _insert(turn, created, [(definition.steps[name], None, None) for name in names])
    _connect(turn, created)


def create_chosen(turn: Turn, chosen: Mapping[UUID, tuple[str, Sequence[Branch]]]) -> None:
    """Create the steps that decisions named, and those whose dependencies then all exist.

    `chosen`: by the id of the decision, its name and the steps that it named. If the dependencies
    that it added make a cycle, that becomes the turn's problem.
    """
    definition = turn.definition
    created = _existing(turn)
    wanted: list[tuple[StepDefinition, UUID | None, None]] = []
    extra: dict[str, tuple[str, ...]] = {}
    names: set[str] = set()
    for decision_id, (_, branches) in chosen.items():
        for branch in branches:
            if branch.name not in created and branch.name not in names:
                names.add(branch.name)
                wanted.append((definition.steps[branch.name], decision_id, None))
                extra[branch.name] = branch.dependencies
    _insert(turn, created, wanted)
    _insert(turn, created, [(step, None, None) for step in _followers(created)])
    _connect(turn, created, extra)
    if any(extra.values()):
        turn.problem = cycle_of(turn)


def create_workers(turn: Turn, batches: Mapping[UUID, tuple[str, Batches]]) -> None:
    """Create the workers of batchable steps. `batches`: by the step's id, its name and its
    division."""
    created = _existing(turn)
    rows = []
    for batchable_id, (name, each) in batches.items():
        worker = turn.definition.worker_of(name)
        rows += [(worker, batchable_id, part) for part in each.parts()]
    _insert(turn, created, rows)
    _connect(turn, created)


def _existing(turn: Turn) -> Created:
    created = Created(turn.definition)
    for step in turn.steps.only("id", "name", "template_step", "kind"):
        created.rows[step.template_step].append(step)
    return created


def _followers(created: Created) -> list[StepDefinition]:
    """Steps to create now because all their dependencies exist, in the order of the graph."""
    definition = created.definition
    followers: list[StepDefinition] = []
    names: set[str] = set()
    for name in dag.in_order(definition.parents):
        step = definition.steps[name]
        if name not in definition.conditional or name in created or step.kind == BATCH_WORKER:
            continue
        kinds = {definition.steps[parent].kind for parent in step.parents}
        if DECISION not in kinds and all(
            parent in names or created.available(parent) for parent in step.parents
        ):
            followers.append(step)
            names.add(name)
    return followers


def _insert(
    turn: Turn,
    created: Created,
    wanted: Iterable[tuple[StepDefinition, UUID | None, Mapping[str, int] | None]],
) -> None:
    rows = [
        Step(
            task=turn.task,
            name=step.name if part is None else f"{step.name}_{part['index']:03d}",
            template_step=step.name,
            kind=step.kind,
            created_by_id=created_by,
            batch=part,
            max_attempts=step.retry.max_attempts,
            retryable=step.retry.retryable,
            state_entered_at=turn.now,
        )
        for step, created_by, part in wanted
    ]
    Step.objects.bulk_create(rows)
    for row in rows:
        created.rows[row.template_step].append(row)
        created.new.add(row.template_step)


def _connect(
    turn: Turn, created: Created, extra: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> None:
    """Create the edges of new steps in both directions: an existing step may have waited for
    one."""
    edges = []
    tolerated = _tolerated(turn, created)
    for name in list(created.rows):
        is_new = name in created.new
        parents = {*created.parents_of(name), *(p for p in extra.get(name, ()) if p in created)}
        for parent in sorted(parents if is_new else parents & created.new):
            edges += [
                StepDependency(parent=above, child=below, tolerates_failure=parent in tolerated)
                for above in created.rows[parent]
                for below in created.rows[name]
            ]
    StepDependency.objects.bulk_create(edges, ignore_conflicts=True)


def _tolerated(turn: Turn, created: Created) -> set[str]:
    """The batch workers whose failure their children tolerate, as the batchable steps of the task
    have said: it is the same whichever was created first, the worker or the child."""
    definition = turn.definition
    kinds = {definition.steps[name].kind for name, rows in created.rows.items() if rows}
    if BATCH_WORKER not in kinds:
        return set()
    continuing = turn.steps.filter(
        kind=BATCHABLE, batch__failure_strategy=CONTINUE_ON_FAILURE
    ).values_list("template_step", flat=True)
    return {definition.worker_of(name).name for name in continuing}


def cycle_of(turn: Turn) -> str:
    """Describe a cycle among the present steps; empty if there is none."""
    parents: dict[str, set[str]] = defaultdict(set)
    edges = StepDependency.objects.filter(child__task=turn.task)
    for child, parent in edges.values_list("child__name", "parent__name"):
        parents[child].add(parent)
    names = dag.cycle(parents)
    return f"the steps depend on each other: {dag.described(names)}" if names else ""
