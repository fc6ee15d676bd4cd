"""Contexts, results, errors and templates of tasks, without the secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from orchestrator.core import authority, contents, expressions, masking, redaction
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.models.prepared import PreparedForIds
from orchestrator.core.redaction import redacted, redacted_schema
from orchestrator.inquiries.shown import inquiries as shown_inquiries
from orchestrator.workflows.models import Step, StepExecution, Task, TaskTemplate
from orchestrator.workflows.models.steps import OF_TASK, StepKind

ASK = StepKind.INQUIRY.value
OF = "_of_step"
WHOLE = re.compile(r"\{\{[^{}]*\}\}")


class Of(NamedTuple):
    """The step that an execution was an attempt at."""

    execution_id: UUID
    template_step: str
    task_id: UUID
    template_id: int
    step_id: UUID
    name: str
    namespace: str


_steps_of = PreparedForIds(
    lambda executions: StepExecution.objects.filter(execution__in=executions).values_list(
        "execution_id", "step__template_step", "step__task_id", "step__task__template_id",
        "step_id", "step__name", "step__task__template__namespace",
    )
)  # fmt: skip


def context(task: Task, *, seen_by: Principal) -> Any:
    """A task's context; the template's `input_schema` marks the secrets."""
    shown = redacted(task.context, schema=task.template.definition.get("input_schema"))
    return authority.payload(shown, of=task.place, seen_by=seen_by)


def result(step: Step, template: TaskTemplate, *, seen_by: Principal) -> Any:
    """A step's result; the `result_schema` of the template's step marks the secrets, or the schema
    of the inquiry that it waited for. Those of the task's context are masked in it."""
    schema = _schema_of_result(template, step.template_step)
    if step.kind == StepKind.INQUIRY and step.execution_id is not None:
        schema = _schemas_of_answers([step.execution_id]).get(step.execution_id, schema)
    shown = redacted(step.result, schema=schema)
    input_schema = template.definition.get("input_schema")
    if shown is not None and redaction.marks_anything(input_schema):
        shown = masking.Masker(_marked(step.task.context, input_schema)).value(shown)
    return authority.payload(shown, of=template.place, seen_by=seen_by)


def completion_metadata(step: Step, *, seen_by: Principal) -> Any:
    """The evidence for a result that was given by hand."""
    return authority.payload(redacted(step.completion_metadata), of=step.place, seen_by=seen_by)


def error(step: Step, *, seen_by: Principal) -> Any:
    """The error of the last attempt. It was stored without the secrets of context and parameters;
    names mark what is left."""
    shown = contents.with_message_redacted(redacted(step.error))
    return authority.payload(shown, of=step.place, seen_by=seen_by)


def definition(template: TaskTemplate) -> dict[str, Any]:
    """A template as it was written, without the parameters and metadata that a name marks, and the
    values that schemas give for secrets. What is an expression is shown: it is no value."""
    shown = dict(template.definition)
    shown["steps"] = [_step(step) for step in shown.get("steps", ())]
    if "metadata" in shown:
        shown["metadata"] = redacted(shown["metadata"])
    if "input_schema" in shown:
        shown["input_schema"] = redacted_schema(shown["input_schema"])
    if environments := shown.get("environments"):
        shown["environments"] = {
            name: _environment(overrides) for name, overrides in environments.items()
        }
    return shown


def of_executions(executions: Collection[Execution]) -> Mapping[UUID, contents.Secrets]:
    """The secrets in executions of steps: results by the step's `result_schema`, or by the schema
    of the inquiry that they waited for, and the values that the `input_schema` marks in the task's
    context. For `MusterApp.execution_secrets`. Nobody is asked about executions that no task
    requested."""
    rows = steps_of([each for each in executions if _may_be_of_a_task(each)])
    if not rows:  # nearly always: one execution in many is of a step
        return {}
    templates = TaskTemplate.objects.in_bulk({row.template_id for row in rows})
    marking = {
        template_id
        for template_id, template in templates.items()
        if redaction.marks_anything(template.definition.get("input_schema"))
    }
    tasks = Task.objects.filter(pk__in={row.task_id for row in rows if row.template_id in marking})
    contexts = dict(tasks.values_list("pk", "context")) if marking else {}
    asking = [
        row.execution_id
        for row in rows
        if _definition(templates[row.template_id], row.template_step).get("type") == ASK
    ]
    answers = _schemas_of_answers(asking) if asking else {}
    return {
        row.execution_id: contents.Secrets(
            answers.get(row.execution_id, _schema_of_result(template, row.template_step)),
            _marked(contexts.get(row.task_id), template.definition.get("input_schema")),
            again="is a step's: reset the step, and its task runs it again",
        )
        for row in rows
        for template in [templates[row.template_id]]
    }


def steps_of(executions: Collection[Execution]) -> list[Of]:
    """The steps that these were attempts at. A page asks more than once: each keeps what was read
    for it."""
    unread = [each for each in executions if OF not in each.__dict__]
    known = {row[0]: Of(*row) for row in _steps_of([each.pk for each in unread])}
    for each in unread:
        each.__dict__[OF] = known.get(each.pk)
    return [each.__dict__[OF] for each in executions if each.__dict__[OF]]


def _may_be_of_a_task(execution: Execution) -> bool:
    # one that is not loaded says nothing
    return str(execution.__dict__.get("requested_by", OF_TASK)).startswith(OF_TASK)


def _marked(value: Any, schema: Any) -> list[str]:
    """The values in it that a schema marks, long enough to be masked."""
    marked = redaction.marked(value, schema=schema) if value is not None else ()
    return [text for each in marked for text in masking.worth_masking(each)]


def _schema_of_result(template: TaskTemplate, name: str) -> Any:
    step = _definition(template, name)
    return step.get("result_schema") or step.get("schema")


def _definition(template: TaskTemplate, name: str) -> dict[str, Any]:
    steps: list[dict[str, Any]] = template.definition.get("steps", [])
    return next((step for step in steps if step.get("name") == name), {})


def _schemas_of_answers(execution_ids: Collection[UUID]) -> dict[UUID, Any]:
    """The schemas of the inquiries for which these waited: a step may wait for one that another
    step has asked."""
    return {id: row.schema for id, row in shown_inquiries.of_executions(execution_ids).items()}


def _environment(overrides: Any) -> Any:
    if not isinstance(overrides, Mapping):
        return overrides
    shown = dict(overrides)
    if "metadata" in shown:
        shown["metadata"] = redacted(shown["metadata"])
    if isinstance(steps := shown.get("steps"), Mapping):
        shown["steps"] = {name: _step(step) for name, step in steps.items()}
    return shown


def _step(step: Any) -> Any:
    if not isinstance(step, Mapping):
        return step
    shown = dict(step)
    for name, without_secrets in SHOWN_OF_A_STEP.items():
        if name in shown:
            shown[name] = without_secrets(shown[name])
    return shown


def _with_expressions(parameters: Any) -> Any:
    """Parameters without what a name marks, but with what is nothing else than an expression."""
    shown = redacted(parameters)
    for path, text in expressions.texts(parameters):
        place = shown
        for part in path[:-1]:
            place = place[part] if place != redaction.REDACTED else place
        if path and place != redaction.REDACTED and WHOLE.fullmatch(text):
            place[path[-1]] = text
    return shown


SHOWN_OF_A_STEP: Mapping[str, Callable[[Any], Any]] = {
    "parameters": _with_expressions,
    "result_schema": redacted_schema,
    "schema": redacted_schema,
}
"""The parts of a step that may have secrets in them, and what removes those."""
