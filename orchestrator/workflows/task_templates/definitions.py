"""A task template as the engine reads it: every default filled in, one environment's overrides
applied. The problems of templates are found in `checking`; here they are valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

from orchestrator.core.retry_policy import RetryPolicy
from orchestrator.inquiries import questions
from orchestrator.workflows import dag

STANDARD, DECISION, DEFERRED = "standard", "decision", "deferred"
BATCHABLE, BATCH_WORKER = "batchable", "batch_worker"
INQUIRY = "inquiry"
KINDS = (STANDARD, DECISION, DEFERRED, BATCHABLE, BATCH_WORKER, INQUIRY)

ASKING = (*questions.NAMES, questions.WAIT_FOR)
"""The keys of a step that asks people: the parameters of the action that it runs."""

CONTINUE_ON_FAILURE, FAIL_FAST, ISOLATE = "continue_on_failure", "fail_fast", "isolate"
FAILURE_STRATEGIES = (CONTINUE_ON_FAILURE, FAIL_FAST, ISOLATE)

STRICT, CALLER_PROVIDED, ALWAYS_UNIQUE = "strict", "caller_provided", "always_unique"
IDENTITY_STRATEGIES = (STRICT, CALLER_PROVIDED, ALWAYS_UNIQUE)

STALENESS_ACTIONS = ("dlq", "error", "none")

EXPRESSION_NAMES = ("task", "steps", "batch", "keys")
"""The names that an expression in a template may begin with."""

WAIT, FAIL = ON_NO_WORKER = ("wait", "fail")

PINNED, LATEST = RELEASES = ("pinned", "latest")


@dataclass(frozen=True, kw_only=True)
class StepRetry:
    """The number of attempts of a step, and the pauses between them."""

    retryable: bool = True
    max_attempts: int = 3
    backoff: str = "exponential"
    backoff_base_ms: int = 1_000
    max_backoff_ms: int = 30_000

    def delay(self, attempts: int) -> timedelta:
        """The pause after this many attempts: 1 s, 2 s, 4 s by default."""
        policy = RetryPolicy(
            backoff=self.backoff,
            backoff_base_ms=self.backoff_base_ms,
            max_backoff_ms=self.max_backoff_ms,
            jitter=0,
        )
        return timedelta(milliseconds=policy.delay_ms(attempts, random=lambda: 0.5))


@dataclass(frozen=True, kw_only=True)
class Batching:
    """The division of a batchable step's work."""

    batch_size: int = 100
    parallelism: int = 10
    """The most workers in process at once."""
    failure_strategy: str = CONTINUE_ON_FAILURE


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """Limits of the time that a task may spend in a state, and what happens then. None: the
    setting's."""

    max_waiting_for_dependencies_minutes: float | None = None
    max_waiting_for_retry_minutes: float | None = None
    max_steps_in_process_minutes: float | None = None
    max_duration_minutes: float | None = None
    staleness_action: str = "dlq"
    auto_fail_on_timeout: bool = True
    auto_dlq_on_timeout: bool = True
    on_no_worker: str = WAIT
    """The choice whether steps that found no worker are tried again when one has come."""


@dataclass(frozen=True, kw_only=True)
class StepDefinition:
    """One step of a template."""

    name: str
    action_ref: str
    kind: str = STANDARD
    parameters: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    retry: StepRetry = StepRetry()
    timeout_seconds: float | None = None
    queue: str | None = None
    result_schema: Mapping[str, Any] | None = None
    when: str | bool = True
    batching: Batching = Batching()


@dataclass(frozen=True, kw_only=True)
class TemplateDefinition:
    """A template in one environment."""

    name: str
    namespace: str
    version: str
    identity_strategy: str = STRICT
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    lifecycle: Lifecycle = Lifecycle()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steps: Mapping[str, StepDefinition] = field(default_factory=dict)
    release: str = PINNED
    """The releases that steps run: those that were installed at the task's request, or when they
    begin."""

    @classmethod
    def of(cls, values: Mapping[str, Any], *, environment: str = "") -> TemplateDefinition:
        """Read a checked template; an environment that it does not name changes nothing."""
        values = overridden(values, environment)
        steps = [_step(step) for step in values["steps"]]
        return cls(
            name=values["name"],
            namespace=values["namespace_name"],
            version=values["version"],
            identity_strategy=values.get("identity_strategy", STRICT),
            input_schema=values.get("input_schema", {}),
            lifecycle=Lifecycle(**values.get("lifecycle", {})),
            metadata=values.get("metadata", {}),
            steps={step.name: step for step in steps},
            release=values.get("release", PINNED),
        )

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """The graph, for `dag`."""
        return {name: step.parents for name, step in self.steps.items()}

    @cached_property
    def conditional(self) -> frozenset[str]:
        """The steps that do not exist from the start: a decision names them, or all their
        dependencies were created, or they are the workers of a batch."""
        names: set[str] = set()
        for name in dag.in_order(self.parents):
            step = self.steps[name]
            depends = any(
                self.steps[parent].kind == DECISION
                or (parent in names and self.steps[parent].kind != BATCH_WORKER)
                or (parent in names and self.batchable_of(parent) in names)
                for parent in step.parents
            )
            if step.kind == BATCH_WORKER or (depends and step.kind != DEFERRED):
                names.add(name)
        return frozenset(names)

    def batchable_of(self, worker: str) -> str:
        """The batchable step whose workers follow this batch worker."""
        return next(p for p in self.steps[worker].parents if self.steps[p].kind == BATCHABLE)

    def worker_of(self, batchable: str) -> StepDefinition:
        """The batch worker that the workers of a batchable step follow."""
        return next(
            step
            for step in self.steps.values()
            if step.kind == BATCH_WORKER and batchable in step.parents
        )


def overridden(values: Mapping[str, Any], environment: str) -> Mapping[str, Any]:
    """Apply one environment's overrides to a template: mappings are merged key by key."""
    overrides = values.get("environments", {}).get(environment)
    if not overrides:
        return values
    by_step = overrides.get("steps", {})
    return {
        **values,
        "lifecycle": values.get("lifecycle", {}) | overrides.get("lifecycle", {}),
        "metadata": values.get("metadata", {}) | overrides.get("metadata", {}),
        "steps": [_overridden_step(s, by_step.get(s["name"], {})) for s in values["steps"]],
    }


def _overridden_step(step: Mapping[str, Any], overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    merged = dict(step)
    for key, value in overrides.items():
        if key in ("action", "handler"):
            merged.pop("action", None)
            merged.pop("handler", None)
        is_merged = key in ("parameters", "retry", "batch") and key in step
        merged[key] = step[key] | value if is_merged else value
    return merged


def _step(values: Mapping[str, Any]) -> StepDefinition:
    kind = values.get("type", STANDARD)
    asks = kind == INQUIRY
    return StepDefinition(
        name=values["name"],
        action_ref=questions.ACTION if asks else values.get("action") or values["handler"],
        kind=kind,
        parameters=asked(values) if asks else values.get("parameters", {}),
        parents=tuple(values.get("dependencies", values.get("depends_on", ()))),
        # people who did not answer are not asked again, unless the template says so
        retry=StepRetry(**({"max_attempts": 1} if asks else {}) | values.get("retry", {})),
        timeout_seconds=values.get("timeout_seconds"),
        queue=values.get("queue"),
        result_schema=values.get("result_schema"),
        when=values.get("when", True),
        batching=Batching(**values.get("batch", {})),
    )


def asked(step: Mapping[str, Any]) -> dict[str, Any]:
    """The description of its question in a step that asks people."""
    return {name: step[name] for name in ASKING if name in step}
