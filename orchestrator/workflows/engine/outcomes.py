"""What the end of an execution means for its step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.core import packs
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Execution
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.task_templates.definitions import (
    BATCHABLE,
    DECISION,
    FAILURE_STRATEGIES,
    StepDefinition,
    TemplateDefinition,
)

WORKER_LIMIT = 10_000
"""Workers of one batchable step."""


class ResultRefused(MusterError):
    """The result is not what the step must give."""


@dataclass(frozen=True)
class Branch:
    """A step that a decision wants created."""

    name: str
    dependencies: tuple[str, ...] = ()
    """Besides those of the template."""


@dataclass(frozen=True)
class Batches:
    """A range of a cursor, and how it is divided among workers."""

    start: int
    end: int
    batch_size: int
    parallelism: int
    failure_strategy: str

    def parts(self) -> Iterator[dict[str, int]]:
        starts = range(self.start, self.end, self.batch_size)
        for index, start in enumerate(starts, 1):
            end = min(start + self.batch_size, self.end)
            yield {"index": index, "start": start, "end": end, "size": end - start}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Outcome:
    """A step's result, and what it creates."""

    result: Any
    branches: tuple[Branch, ...] = ()
    batches: Batches | None = None


def of_result(step: StepDefinition, definition: TemplateDefinition, result: Any) -> Outcome:
    """What a result means. Raises ResultRefused."""
    if step.result_schema is not None:
        problems = packs.validate_value(step.result_schema, result)
        if problems:
            told = "; ".join(f"{p.pointer or '/'}: {p.message}" for p in problems[:3])
            raise ResultRefused(f"the result does not fit result_schema: {told}")
    if step.kind == DECISION:
        return Outcome(result, branches=tuple(_branches(step, definition, result)))
    if step.kind == BATCHABLE:
        return Outcome(result, batches=_batches(step, result))
    return Outcome(result)


def error_of(execution: Execution | None) -> dict[str, Any]:
    """Why an attempt failed, as the step keeps it."""
    if execution is None:
        return {"error": "lost", "message": "its execution was deleted", "failed_by": "workflows"}
    told = execution.result if isinstance(execution.result, dict) else {}
    return {
        "execution_id": str(execution.pk),
        "status": str(execution.status),
        "reason": execution.reason,
        "error": told.get("error", execution.reason),
        "message": told.get("message", ""),
        "failed_by": told.get("failed_by", ""),
        "lost_workers": execution.lost_workers,
    }


def may_be_retried(execution: Execution | None) -> bool:
    """Whether another attempt could help: what somebody cancelled stays cancelled."""
    return execution is None or execution.status != ExecutionStatus.CANCELLED


def _branches(
    step: StepDefinition, definition: TemplateDefinition, result: Any
) -> Iterator[Branch]:
    named = result.get("steps", result.get("value")) if isinstance(result, dict) else result
    if not isinstance(named, list):
        raise ResultRefused('a decision must return {"steps": [names of steps to create]}')
    possible = [
        each.name
        for each in definition.steps.values()
        if step.name in each.parents and each.name in definition.conditional
    ]
    for each in named:
        name = each.get("name") if isinstance(each, dict) else each
        more = each.get("dependencies", []) if isinstance(each, dict) else []
        if name not in possible:
            told = ", ".join(possible)
            raise ResultRefused(f"the decision names {name!r}, expected one of {told}")
        unknown = [one for one in more if one not in definition.steps]
        if unknown:
            raise ResultRefused(f"{name!r} is to depend on {unknown[0]!r}, which is no step")
        yield Branch(name, tuple(more))


def _batches(step: StepDefinition, result: Any) -> Batches:
    values: Mapping[str, Any] = result if isinstance(result, dict) else {}
    cursor = values.get("cursor", values)
    start, end = _ends(cursor)
    sizes = {
        key: values.get(key, getattr(step.batching, key)) for key in ("batch_size", "parallelism")
    }
    strategy = values.get("failure_strategy", step.batching.failure_strategy)
    if not all(_is_whole(size) and size >= 1 for size in sizes.values()):
        raise ResultRefused(f"batch_size and parallelism must be at least 1, found {sizes}")
    if strategy not in FAILURE_STRATEGIES:
        raise ResultRefused(f"failure_strategy {strategy!r} is none of {FAILURE_STRATEGIES}")
    batches = Batches(start, max(start, end), failure_strategy=strategy, **sizes)
    workers = -(-(batches.end - start) // batches.batch_size)
    if workers > WORKER_LIMIT:
        raise ResultRefused(
            f"{workers:,} workers of {batches.batch_size:,} each: at most {WORKER_LIMIT:,} are "
            "made, raise batch_size"
        )
    return batches


def _ends(cursor: Any) -> tuple[int, int]:
    start, end = (cursor.get("start"), cursor.get("end")) if isinstance(cursor, dict) else ("", "")
    if not isinstance(start, int) or not isinstance(end, int):
        raise ResultRefused('a batchable step must return {"cursor": {"start": 0, "end": 1000}}')
    return start, end


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
