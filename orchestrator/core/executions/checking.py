"""Check requests for executions: find all that is wrong with them, before any row is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.core import json_values, key_references, keyholder, packs, retry_policy, selectors
from orchestrator.core.errors import Refusal
from orchestrator.core.executions.new_execution import NewExecution
from orchestrator.core.models import Action, Worker
from orchestrator.core.models.catalog import waits_too_long
from orchestrator.core.packs.keys import LONGEST_TIMEOUT_SECONDS

BOUNDS: Mapping[str, tuple[Any, Any]] = {
    "timeout_seconds": (0.001, LONGEST_TIMEOUT_SECONDS),
    "deadline_seconds": (0.001, 366 * 86_400),
    "queue_ttl_ms": (1, 2**31 - 1),
    "scheduled_timeout_seconds": (0.001, 366 * 86_400),
    "priority": (-100, 100),
}
"""The least and the most that a request may ask for, on every face; more is a mistake of units."""

LONGEST_TEXTS = {"idempotency_key": 200, "correlation_id": 100}

OWN_KEYS = "muster:"
"""The beginning of idempotency keys that only Muster itself uses: nobody can take one before it."""


def problems(
    new: NewExecution, action: Action | None, workers: Mapping[int, Worker], *, is_own: bool = True
) -> Iterable[tuple[str, str]]:
    """Find what is wrong with a request, as JSON pointers and messages. `is_own`: Muster itself
    asks."""
    if not new.action_ref:
        named = f"the queue {new.queue} has none of its own" if new.queue else "no queue is named"
        yield "/action_ref", f"expected the name of an action, as {named}"
    elif action is None:
        yield "/action_ref", f"no action is called {new.action_ref!r}"
    elif action.pack.removed_at is not None:
        name = action.pack.name
        yield "/action_ref", f"the pack {name} was removed: `pack install` brings it back"
    elif action.pack.draining_since is not None and not is_own:
        yield "/action_ref", f"the pack {action.pack.name} is being removed"
    elif not action.enabled:
        yield "/action_ref", f"the action {new.action_ref} is disabled"
    else:
        yield from _parameter_problems(new.parameters, action)
        yield from _selector_problems(new.worker_selector, action)
    for name, message in retry_policy.problems(new.retry or {}):
        yield json_values.pointer(["retry", name]), message
    if new.worker_id is not None:
        worker = workers.get(new.worker_id)
        if worker is None:
            yield "/worker_id", f"no worker has the id {new.worker_id}"
        elif worker.retired_at is not None:
            yield "/worker_id", f"the worker {worker} is retired"
    yield from _bound_problems(new)
    for name, longest in LONGEST_TEXTS.items():
        text = getattr(new, name)
        if text is not None and (problem := json_values.text_problem(text, longest)):
            yield f"/{name}", problem


def _bound_problems(new: NewExecution) -> Iterable[tuple[str, str]]:
    too_long = dict(waits_too_long(new.queue_ttl_ms, new.scheduled_timeout_seconds))
    for name, (least, most) in BOUNDS.items():
        value = getattr(new, name)
        if value is not None and not least <= value <= most:
            yield f"/{name}", f"expected {least} to {most}, found {value}"
        elif name in too_long:
            yield f"/{name}", too_long[name]


def _selector_problems(
    selector: Mapping[str, str] | None, action: Action
) -> Iterable[tuple[str, str]]:
    if selector is None:
        return
    if problems := selectors.problems(selector):
        for key, message in problems:
            yield json_values.pointer(["worker_selector", *([key] if key else [])]), message
        return
    for key, value in selectors.conflicts(action.worker_selector, selector):
        place = json_values.pointer(["worker_selector", key])
        yield place, f"the action {action.ref} asks for {key}={value}, so no worker could have both"


def _parameter_problems(parameters: Any, action: Action) -> Iterable[tuple[str, str]]:
    if not isinstance(parameters, Mapping):
        yield "/parameters", f"expected an object, found {type(parameters).__name__}"
        return
    faults = list(json_values.faults(dict(parameters)))
    if not faults:
        faults = [
            (json_values.pointer(path), what) for path, what in key_references.faults(parameters)
        ]
    for place, what in faults:
        yield f"/parameters{place}", what
    if not faults:
        for problem in packs.validate_parameters(action, dict(parameters)):
            yield f"/parameters{problem.pointer}", problem.message


def reserved_keys(news: Sequence[NewExecution]) -> Iterable[Refusal]:
    """The idempotency keys that nobody but Muster itself may use."""
    for index, new in enumerate(news):
        if (new.idempotency_key or "").startswith(OWN_KEYS):
            message = f"keys that begin with {OWN_KEYS!r} are those of Muster itself"
            yield Refusal(index, "/idempotency_key", message)


def refused_keys(news: Sequence[NewExecution], owner: int) -> list[Refusal]:
    """The keys that may not be used; one question for all of them, and none without a key."""
    wanted = [
        (index, f"/parameters{json_values.pointer(path)}", reference, new.action_ref)
        for index, new in enumerate(news)
        for path, reference in key_references.found(new.parameters)
    ]
    if not wanted:
        return []
    asked = {
        (reference, ref): keyholder.Wanted(reference, ref, owner) for _, _, reference, ref in wanted
    }
    refused = keyholder.holder().refusals(asked.values())
    return [
        Refusal(index, pointer, refused[asked[reference, ref]])
        for index, pointer, reference, ref in wanted
        if asked[reference, ref] in refused
    ]
