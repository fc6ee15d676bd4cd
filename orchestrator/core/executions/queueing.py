"""The queue of a new execution: which one, whether it takes it, and its defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.core import queue_terms, spelling
from orchestrator.core.errors import Refusal
from orchestrator.core.executions.new_execution import NewExecution
from orchestrator.core.models import Action
from orchestrator.core.queue_terms import DEFAULT, QueueTerms
from orchestrator.core.states import Lane


def with_actions(news: Sequence[NewExecution]) -> list[NewExecution]:
    """The requests; those that name a queue and no action, with the action of their queue."""
    wanted = {new.queue for new in news if new.queue and not new.action_ref}
    if not wanted:
        return list(news)
    terms = queue_terms.queues().terms([name for name in wanted if name])
    refs = {name: known.action_ref for name, known in terms.items()}
    return [
        new if new.action_ref else replace(new, action_ref=refs.get(new.queue or "", ""))
        for new in news
    ]


def chosen(new: NewExecution, action: Action | None) -> str | None:
    """The name of its queue; None for the default one.

    The request's, or else the action's. A request that names a worker leaves the action's aside.
    """
    name = new.queue
    if not name and action is not None and action.queue and new.worker_id is None:
        name = action.queue
    return None if not name or name == DEFAULT else name


def terms_of(names: Sequence[str | None]) -> Mapping[str, QueueTerms]:
    """The terms of these queues. Asks nothing if all are the default one."""
    wanted = {name for name in names if name is not None}
    return queue_terms.queues().terms(wanted) if wanted else {}


def refusals(
    news: Sequence[NewExecution],
    names: Sequence[str | None],
    known: Mapping[str, QueueTerms],
) -> Iterator[Refusal]:
    """The reasons why queues do not take some of these requests."""
    for index, (new, name) in enumerate(zip(news, names, strict=True)):
        if name is None:
            continue
        if name not in known:
            yield Refusal(index, "/queue", f"no queue is called {name!r}{_nearest(name)}")
        elif refusal := known[name].refusal:
            yield Refusal(index, "/queue", refusal)
        if new.worker_id is not None:
            message = (
                "expected no queue beside worker_id: the work of a queue goes to the workers that "
                f"serve it, found {name!r}"
            )
            yield Refusal(index, "/queue", message)


def _nearest(name: str) -> str:
    known = queue_terms.queues().terms()
    near = spelling.near(name, [*known, DEFAULT])
    return f", did you mean {near!r}?" if near else ""


def with_defaults(new: NewExecution, queue: QueueTerms) -> NewExecution:
    """The request, with the values of its queue for what it leaves out."""
    return replace(
        new,
        priority=queue.priority if new.priority is None else new.priority,
        timeout_seconds=new.timeout_seconds or queue.timeout_seconds,
        deadline_seconds=new.deadline_seconds or queue.deadline_seconds,
    )


def retry_policy(new: NewExecution, action: Action, queue: QueueTerms) -> dict[str, Any] | None:
    """The action's policy, with the queue's limit, overridden by the request's values; None leaves
    the action's own, whatever it becomes."""
    if queue.retry_limit is None and new.retry is None:
        return None
    limit = {} if queue.retry_limit is None else {"max_attempts": queue.retry_limit + 1}
    return {**action.retry_policy, **limit, **(new.retry or {})}


def lane(new: NewExecution) -> Lane:
    """Its lane: executions that were started before and lost begin in the retry lane."""
    return Lane.RETRY if new.retry_count else Lane.INPUT
