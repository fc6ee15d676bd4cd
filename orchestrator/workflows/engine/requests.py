"""Accept tasks. All validation happens here, before any row is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from orchestrator.core import authority, executions, json_values, key_references, news, packs, relay
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict, MusterError, Refusal, Refused
from orchestrator.workflows import messages, pack_work
from orchestrator.workflows.models import Task, TaskTemplate
from orchestrator.workflows.task_templates import TemplateDefinition
from orchestrator.workflows.task_templates.definitions import ALWAYS_UNIQUE, CALLER_PROVIDED, STRICT

LONGEST_TEXTS = {
    "initiator": 150,
    "source_system": 150,
    "reason": 500,
    "correlation_id": 100,
    "parent_correlation_id": 100,
    "idempotency_key": 200,
}
PRIORITIES = (-100, 100)
TAGS, LONGEST_TAG = 50, 100


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task as a caller asks for it."""

    namespace: str
    name: str
    version: str
    context: Mapping[str, Any] = field(default_factory=dict)
    initiator: str = ""
    source_system: str = ""
    reason: str = ""
    tags: Sequence[str] = ()
    priority: int = 0
    correlation_id: str | None = None
    parent_correlation_id: str | None = None
    idempotency_key: str | None = None


class UnknownTemplate(MusterError):
    """No template has this name and version, or it is disabled."""


class TaskRefused(Refused):
    """The request was refused and left no row."""


class KeyMissing(MusterError):
    """Tasks of this template need an idempotency_key."""


class TaskExists(Conflict):
    """This task was requested before."""

    kind = "task-exists"

    def __init__(self, message: str, task_id: UUID) -> None:
        super().__init__(message)
        self.task_id = task_id


def request(
    new: NewTask, *, requested_by: str, now: datetime, principal: Principal | None = None
) -> Task:
    """Accept a task. The message is sent after the commit: accepting needs no broker.

    `principal`: whose permissions and idempotency keys count; without one, Muster itself asks. A
    template beyond its reach is unknown, and it must be permitted to run each action that the
    template names: the steps run with its permissions. Raises PermissionMissing.

    The template's `identity_strategy` says which tasks are the same: `strict` raises TaskExists for
    the same template and context; `caller_provided` needs an idempotency_key and raises KeyMissing;
    `always_unique` treats every task as new. A repeated idempotency_key returns the task of its
    first use, and raises TaskExists if that one has another template or context. Raises
    UnknownTemplate, and TaskRefused with all problems.
    """
    template = TaskTemplate.objects.filter(
        namespace=new.namespace, name=new.name, version=new.version, enabled=True
    ).first()
    if template is None or not _may_run(template, principal):
        raise UnknownTemplate(_unknown(new, principal))
    environment: str = settings.MUSTER.environment
    definition = TemplateDefinition.of(template.definition, environment=environment)
    if principal is not None:
        require_permission(definition, principal)
    if refusals := [Refusal(0, *problem) for problem in _problems(new, definition)]:
        raise TaskRefused(refusals)
    task = Task(
        template=template,
        environment=environment,
        context=dict(new.context),
        priority=new.priority,
        identity=_identity(new, definition, key_owner=principal.key_owner if principal else 0),
        idempotency_key=new.idempotency_key or "",
        initiator=new.initiator,
        source_system=new.source_system,
        reason=new.reason,
        tags=list(new.tags),
        correlation_id=new.correlation_id,
        parent_correlation_id=new.parent_correlation_id,
        releases=pack_work.releases_of(definition),
        requested_by=requested_by,
        requester_number=principal.key_owner if principal else 0,
        created_at=now,
        state_entered_at=now,
        clock_started_at=now,
    )
    with transaction.atomic():
        # an identity that is taken is skipped and then looked up: no window between the two
        Task.objects.bulk_create([task], ignore_conflicts=task.identity is not None)
        if (holder := _holder(task)) is not None:
            return _same(task, holder)
        transaction.on_commit(partial(relay.send_soon, messages.requested([task.pk])))
        news.tell(Task, [task.pk], state=task.state, now=now, is_in_history=False)
    return task


def _may_run(template: TaskTemplate, principal: Principal | None) -> bool:
    return principal is None or authority.may(principal, "tasks.run", template.place)


def require_permission(definition: TemplateDefinition, principal: Principal) -> None:
    """Raise PermissionMissing unless the caller may run every action that the template names."""
    refs = {step.action_ref for step in definition.steps.values()}
    by = f"the template {definition.namespace}/{definition.name}/{definition.version}"
    executions.require_permission(refs, principal=principal, by=by)


def _unknown(new: NewTask, principal: Principal | None) -> str:
    ref = f"{new.namespace}/{new.name}/{new.version}"
    others = TaskTemplate.objects.filter(namespace=new.namespace, name=new.name, enabled=True)
    if principal is not None:
        others = others.visible_to(principal, "tasks.run")
    versions = ", ".join(others.values_list("version", flat=True)[:10])
    return f"No template is called {ref}" + (f"; its versions are {versions}" if versions else "")


def _identity(new: NewTask, definition: TemplateDefinition, *, key_owner: int) -> str | None:
    """A hash that is equal for requests of the same task; None if each is new. Raises
    KeyMissing."""
    strategy, key = definition.identity_strategy, new.idempotency_key
    if strategy == CALLER_PROVIDED and key is None:
        raise KeyMissing(f"Tasks of {new.namespace}/{new.name} need an idempotency_key")
    if key is not None:
        parts: list[Any] = ["key", new.namespace, new.name, key]
        # the installation's own keys are hashed as they were before keys had owners
        parts += [key_owner] if key_owner else []
    elif strategy == STRICT:
        parts = ["context", new.namespace, new.name, new.version, new.context]
    else:
        return None
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _holder(task: Task) -> Task | None:
    """The task that already has this one's identity."""
    if task.identity is None:
        return None
    others = Task.objects.filter(identity=task.identity).exclude(pk=task.pk)
    return others.select_related("template").first()


def _same(task: Task, holder: Task) -> Task:
    if not task.idempotency_key:
        raise TaskExists(
            f"Task {holder.pk} has the same template and context, and its template is `strict`",
            holder.pk,
        )
    same = Task.objects.filter(pk=holder.pk, context=task.context).exists()
    if holder.template_id != task.template_id or not (same or holder.context == task.context):
        raise TaskExists(
            f"The idempotency key {task.idempotency_key!r} belongs to task {holder.pk}, which has "
            "another version or another context",
            holder.pk,
        )
    return holder


def _problems(new: NewTask, definition: TemplateDefinition) -> Iterator[tuple[str, str]]:
    """The problems with a request: a JSON pointer to the place of each, and what is wrong."""
    faults = list(json_values.faults(dict(new.context)))
    for place, what in faults:
        yield f"/context{place}", what
    for path, _ in () if faults else key_references.found(dict(new.context)):
        place = json_values.pointer(path)
        yield f"/context{place}", "a context refers to no keys: templates do"
    if not faults:
        for problem in packs.validate_value(definition.input_schema, dict(new.context)):
            yield f"/context{problem.pointer}", problem.message
    low, high = PRIORITIES
    if not low <= new.priority <= high:
        yield "/priority", f"expected {low} to {high}, found {new.priority}"
    for name, longest in LONGEST_TEXTS.items():
        text = getattr(new, name)
        if text is not None and (fault := json_values.text_problem(text, longest, least=0)):
            yield f"/{name}", fault
    if new.idempotency_key is not None:
        if not new.idempotency_key:
            yield "/idempotency_key", "expected at least 1 character"
        if definition.identity_strategy == ALWAYS_UNIQUE:
            why = "each task of this template is a new one: leave the key out"
            yield "/idempotency_key", why
    if len(new.tags) > TAGS:
        yield "/tags", f"expected at most {TAGS}, found {len(new.tags)}"
    for index, tag in enumerate(new.tags):
        if fault := json_values.text_problem(tag, LONGEST_TAG, least=0):
            yield f"/tags/{index}", fault
