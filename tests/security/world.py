"""One thing of each kind, in the pack, the namespace and the zone `shop`, and a secret in all that
went into work or came out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.access import keys
from orchestrator.access.models import ApiToken, Grant, Identity
from orchestrator.automation.models import Assignment, Enforcement
from orchestrator.automation.sensors import logs
from orchestrator.bulk.models import BulkOrder
from orchestrator.core import clock, live_output
from orchestrator.core.live_output import Piece
from orchestrator.core.models import Action, DLQEntry, Execution, Worker
from orchestrator.inquiries import asking, questions
from orchestrator.inquiries.models import Inquiry
from orchestrator.workflows import task_templates
from orchestrator.workflows.models import Step, StepExecution, Task, TaskTemplate
from orchestrator.workflows.states import StepState, TaskState
from tests.automation import play
from tests.automation.sensors import making as sensors
from tests.bulk import play as bulk
from tests.factories import (
    make_action,
    make_dlq_entry,
    make_execution,
    make_step,
    make_task,
    make_worker,
)
from tests.policies.play import make_policy
from tests.principals import ROOT, given, service, token
from tests.queues.play import make_queue

CANARY = "canary-4711"
"""No caller without `payloads.read` sees it anywhere."""

SHOP: dict[str, Any] = {"packs": ["sho*"], "namespaces": ["shop"], "labels": {"zone": "shop"}}
ELSEWHERE: dict[str, Any] = {"packs": ["other"], "namespaces": ["oth*"], "labels": {"zone": "b"}}


@dataclass
class World:
    """What there is, and who asks."""

    action: Action
    dangerous: Action
    foreign: Action
    execution: Execution
    template: TaskTemplate
    task: Task
    step: Step
    dangerous_step: Step
    stuck: Task
    worker: Worker
    gone: Worker
    entries: dict[str, DLQEntry]
    identity: Identity
    disabled: Identity
    grant: Grant
    foreign_token: ApiToken
    enforcement: Enforcement
    inquiry: Inquiry
    order: BulkOrder
    texts: dict[str, str] = field(default_factory=dict)
    """The texts of tokens by the names of their owners."""

    def text_of(self, role: str, *, is_in_scope: bool, is_unscoped: bool) -> str:
        """The token of who has this role in the shop, or elsewhere, or everywhere."""
        where = "shop" if is_in_scope else "elsewhere"
        name = f"{role}-{'everywhere' if is_in_scope and is_unscoped else where}"
        if name not in self.texts:
            scope = {"shop": SHOP, "elsewhere": ELSEWHERE}.get(name.rpartition("-")[2], {})
            # what an admin reaches has no bounds in the matrix
            granted = given(role) if role == "admin" else given(role, **scope)
            self.texts[name] = token(name, granted)
        return self.texts[name]

    def own_token(self, text: str) -> ApiToken:
        return next(row for row in ApiToken.objects.all() if self.texts.get(row.name) == text)


def definition(name: str, action: str, version: str = "1.0.0") -> dict[str, Any]:
    """A template of one step in the shop."""
    return {
        "name": name,
        "namespace_name": "shop",
        "version": version,
        "identity_strategy": "always_unique",
        "steps": [{"name": "only", "action": action}, _second(action)],
    }


def _second(action: str) -> dict[str, Any]:
    return {"name": "then", "action": action, "dependencies": ["only"]}


def make() -> World:
    now = clock.now()
    secret = {"text": CANARY}
    options = {"env": {"KEY": CANARY}, "headers": {"x-key": CANARY}}
    action = make_action("shop.echo", runtime_options=options)
    dangerous = make_action("shop.shell", dangerous=True)
    foreign = make_action("core.echo")
    key = keys.NewKey(reference=keys.Reference("pack", "shop", "order"), value=CANARY)
    keys.create(key, by=ROOT, now=now)
    worker = make_worker("w1", now=now, labels={"zone": "shop"})
    gone = make_worker("w2", now=now, status=Worker.Status.INACTIVE, labels={"zone": "shop"})
    for name, ref in (("order", action.ref), ("shell", dangerous.ref), ("mixed", foreign.ref)):
        task_templates.install_templates([definition(name, ref)], now=now)
    templates = {row.name: row for row in TaskTemplate.objects.all()}
    execution = make_execution(
        "scheduled", action=action, parameters=secret, worker=worker, now=now
    )
    printed = Piece(execution.pk, 1, "stdout", 0, CANARY.encode())
    live_output.write([printed], now=now)
    task, step = _task(templates["order"], action, now)
    _, dangerous_step = _task(templates["shell"], dangerous, now)
    stuck, _ = _task(templates["order"], action, now, TaskState.ERROR)
    rule: dict[str, Any] = {"action_ref": action.ref, "parameters": {"text": "{{ trigger.text }}"}}
    play.make_rule("shop.ship", now=now, **rule)
    payload = {"number": 1, "text": CANARY}
    (enforcement,) = play.enforce(
        play.match(play.record_payloads(payload, now=now), now=now), now=now
    )
    watch = sensors.make_sensor(now=now)
    Assignment.objects.filter(sensor=watch).update(cursor={"text": CANARY})
    logs.append(watch, f"{CANARY}\n", now=now)
    make_queue("order")
    asked = asking.by_caller(ROOT, pack="shop", purpose="test")
    inquiry = asking.ask(questions.read({"prompt": "Go?"}), asked=asked, now=now)
    make_policy("one-order", scope="pack", target="shop", limit=100)
    text = token("foreign", given("viewer"))
    foreign_token = ApiToken.objects.get(name="foreign")
    disabled = service("disabled", given("viewer"))
    Identity.objects.filter(pk=disabled.pk).update(disabled_at=now)
    return World(
        action=action,
        dangerous=dangerous,
        foreign=foreign,
        execution=execution,
        template=templates["order"],
        task=task,
        step=step,
        dangerous_step=dangerous_step,
        stuck=stuck,
        worker=worker,
        gone=gone,
        entries=_entries(execution, task, now),
        identity=foreign_token.identity,
        disabled=disabled,
        grant=Grant.objects.get(identity=foreign_token.identity),
        foreign_token=foreign_token,
        enforcement=enforcement,
        inquiry=inquiry,
        order=bulk.order("cancel", "status:open"),
        texts={"foreign": text},
    )


def _task(
    template: TaskTemplate,
    action: Action,
    now: Any,
    state: TaskState = TaskState.BLOCKED_BY_FAILURES,
) -> tuple[Task, Step]:
    task = make_task(state, template=template, context={"text": CANARY}, now=now)
    step = make_step(
        StepState.ERROR, task=task, name="only", now=now, error={"message": CANARY},
        result={"text": CANARY},
    )  # fmt: skip
    make_step(task=task, name="then", now=now)
    run = make_execution("completed", action=action, now=now, parameters={"text": CANARY})
    StepExecution.objects.create(step=step, execution=run, fence=1)
    Step.objects.filter(pk=step.pk).update(execution=run)
    return task, step


def _entries(execution: Execution, task: Task, now: Any) -> dict[str, DLQEntry]:
    common: dict[str, Any] = {"now": now, "snapshot": {"text": CANARY}, "detail": CANARY}
    return {
        "task": make_dlq_entry(
            subject_kind="task",
            subject_id=task.pk,
            subject_name=task.template.ref,
            dlq_reason="max_retries_exceeded",
            **common | {"snapshot": {"steps": [{"last_error": {"message": CANARY}}]}},
        ),
        "execution": make_dlq_entry(
            about=execution,
            subject_name=execution.action_ref,
            attempt=1,
            fingerprint="f1",
            headers={"text": CANARY},
            **common
            | {"detail": "its worker was down", "snapshot": {"parameters": {"text": CANARY}}},
        ),
        "letter of nobody": make_dlq_entry(
            dlq_reason="message_invalid", raw_body=CANARY.encode(), fingerprint="f2", **common
        ),
    }
