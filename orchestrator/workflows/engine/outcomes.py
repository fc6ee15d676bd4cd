"""Meaning of the end of an execution for its step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.core import packs
from orchestrator.core.errors import MusterError, kind_and_place
from orchestrator.core.json_values import is_whole
from orchestrator.core.models import Execution
from orchestrator.core.redaction import quoted
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.task_templates.definitions import (
    BATCHABLE,
    DECISION,
    FAILURE_STRATEGIES,
    StepDefinition,
    TemplateDefinition,
)

WORKER_LIMIT = 10_000
"""The most workers of one batchable step."""


TEMPLATE_FAILED = "template_failed"
"""The executor failed at what the template asks for, twice."""


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
    """A range of a cursor, and its division among workers."""

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
    """A step's result, and the steps that it creates."""

    result: Any
    branches: tuple[Branch, ...] = ()
    batches: Batches | None = None


def of_result(step: StepDefinition, definition: TemplateDefinition, result: Any) -> Outcome:
    """Interpret a result. Raises ResultRefused."""
    if step.result_schema is not None:
        problems = packs.validate_value(step.result_schema, result)
        if problems:
            summary = "; ".join(f"{p.pointer or '/'}: {p.message}" for p in problems[:3])
            raise ResultRefused(f"the result does not fit result_schema: {summary}")
    if step.kind == DECISION:
        return Outcome(result, branches=tuple(_branches(step, definition, result)))
    if step.kind == BATCHABLE:
        return Outcome(result, batches=_batches(step, result))
    return Outcome(result)


def error_of(execution: Execution | None) -> dict[str, Any]:
    """The error of a failed attempt, as the step stores it."""
    if execution is None:
        return {"error": "lost", "message": "its execution was deleted", "failed_by": "workflows"}
    result = execution.result if isinstance(execution.result, dict) else {}
    return {
        "execution_id": str(execution.pk),
        "status": str(execution.status),
        "reason": execution.reason,
        "error": result.get("error", execution.reason),
        "message": result.get("message", ""),
        "failed_by": result.get("failed_by", ""),
        "lost_workers": execution.lost_workers,
    }


def described(error: Exception) -> str:
    return f"{kind_and_place(error)} in the executor, whose log has more"


def error_of_template(error: Exception) -> dict[str, Any]:
    """The error of a step at which the executor failed, as the step stores it."""
    return {
        "error": TEMPLATE_FAILED, "reason": TEMPLATE_FAILED, "message": described(error),
        "failed_by": "workflows",
    }  # fmt: skip


def may_be_retried(execution: Execution | None) -> bool:
    """Return True if another attempt could help; a cancelled execution stays cancelled."""
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
            names = ", ".join(possible)
            raise ResultRefused(f"the decision names {quoted(name)}, expected one of {names}")
        unknown = [one for one in more if one not in definition.steps]
        if unknown:
            raise ResultRefused(f"{name!r} is to depend on {quoted(unknown[0])}, which is no step")
        yield Branch(name, tuple(more))


def _batches(step: StepDefinition, result: Any) -> Batches:
    values: Mapping[str, Any] = result if isinstance(result, dict) else {}
    cursor = values.get("cursor", values)
    start, end = _ends(cursor if isinstance(result, dict) else result)
    sizes = {
        key: values.get(key, getattr(step.batching, key)) for key in ("batch_size", "parallelism")
    }
    strategy = values.get("failure_strategy", step.batching.failure_strategy)
    if not all(is_whole(size) and size >= 1 for size in sizes.values()):
        found = " and ".join(map(quoted, sizes.values()))
        raise ResultRefused(f"batch_size and parallelism must be at least 1, found {found}")
    if strategy not in FAILURE_STRATEGIES:
        raise ResultRefused(f"failure_strategy {quoted(strategy)} is none of {FAILURE_STRATEGIES}")
    batches = Batches(start, end, failure_strategy=strategy, **sizes)
    workers = -(-(batches.end - start) // batches.batch_size)
    if workers > WORKER_LIMIT:
        raise ResultRefused(
            f"{workers:,} workers of {batches.batch_size:,} each: at most {WORKER_LIMIT:,} are "
            "made, raise batch_size"
        )
    return batches


def _ends(cursor: Any) -> tuple[int, int]:
    expected = 'a batchable step must return {"cursor": {"start": 0, "end": 1000}}'
    if not isinstance(cursor, dict) or not {"start", "end"} <= cursor.keys():
        raise ResultRefused(f"{expected}, found {quoted(cursor)}")
    start, end = cursor["start"], cursor["end"]
    if not is_whole(start) or not is_whole(end):
        raise ResultRefused(f"{expected}, found start {quoted(start)} and end {quoted(end)}")
    if end < start:
        raise ResultRefused(
            f"expected a cursor that ends at its start or later, found {start} to {end}"
        )
    return start, end
