"""Accept executions. All of a request is checked before any row is written: see `checking`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from orchestrator.core import (
    admission,
    authority,
    messages,
    news,
    relay,
    tracing,
)
from orchestrator.core.authority import DANGEROUS, PermissionMissing, Principal
from orchestrator.core.copying import insert_many
from orchestrator.core.errors import Conflict, NotFound, Refusal, Refused
from orchestrator.core.executions import checking, holding, placing, queueing
from orchestrator.core.executions.dispatching import Dispatch, messages_for
from orchestrator.core.executions.new_execution import NewExecution
from orchestrator.core.models import Action, Execution, Worker
from orchestrator.core.models.executions import REQUEST_REASON_MAX
from orchestrator.core.packs.keys import LONGEST_TIMEOUT_SECONDS
from orchestrator.core.queue_terms import QueueTerms
from orchestrator.core.states import ExecutionStatus

Wanted = tuple[str, int | None]
"""The ref of an action, and the release that a request names, if any."""


class RequestRefused(Refused):
    """The request was refused and left no row."""


class IdempotencyConflict(Conflict):
    """This idempotency key was used before, for another action or other parameters."""

    kind = "idempotency-conflict"


class IdempotencyKeyFreed(Conflict):
    """The execution that had this idempotency key was so old that it has just been removed: ask
    again."""

    kind = "idempotency-key-freed"
    retry_after_seconds = 1


class UnknownExecution(NotFound):
    """No execution has this id."""


def request(
    new: NewExecution, *, requested_by: str, now: datetime, principal: Principal | None = None
) -> Execution:
    """Accept one execution; see `request_many`."""
    return request_many([new], requested_by=requested_by, now=now, principal=principal)[0]


def request_many(
    news: Sequence[NewExecution],
    *,
    requested_by: str | Sequence[str],
    now: datetime,
    principal: Principal | None = None,
    with_own_keys: bool = False,
) -> list[Execution]:
    """Accept executions: all of them, or none; returns their rows in the order of `news`.

    `requested_by`: who asked for all of them, or for each. `principal`: whose permissions and
    idempotency keys count; without one, Muster itself asks. `with_own_keys`: the keys are those of
    Muster itself, which it asks with for somebody else. Actions and workers beyond its reach are
    unknown. A repeated idempotency key returns the row of its first use by the same owner.
    Raises RequestRefused with all problems, IdempotencyConflict, IdempotencyKeyFreed and
    PermissionMissing. The message is sent after the commit and in the background: accepting
    needs no broker.
    """
    began_ns = tracing.clock_ns()
    if any(new.queue for new in news):
        news = queueing.with_actions(news)
    actions = _actions_of(news)
    names = [queueing.chosen(new, actions.get(_wanted(new))) for new in news]
    queues = queueing.terms_of(names)
    # what is beyond a column's range is not looked up, and so is unknown
    pinned = {new.worker_id for new in news if 0 < (new.worker_id or 0) < 2**63}
    workers = Worker.objects.in_bulk(pinned) if pinned else {}
    owner = 0 if principal is None else principal.key_owner
    if principal is not None:
        actions = _runnable(actions, principal)
        workers = _known(workers, principal)
    refusals = [
        Refusal(index, pointer, message)
        for index, new in enumerate(news)
        for pointer, message in checking.problems(
            new, actions.get(_wanted(new)), workers, is_own=principal is None
        )
    ]
    of_queues = list(queueing.refusals(news, names, queues))
    # a queue that takes nothing cannot say what it runs, so that is not the request's fault
    without_action = {each.index for each in of_queues if not news[each.index].action_ref}
    refusals = [r for r in refusals if r.pointer != "/action_ref" or r.index not in without_action]
    refusals += of_queues
    refusals += holding.refusals(news, names, [actions.get(_wanted(new)) for new in news])
    if not with_own_keys:
        refusals += checking.reserved_keys(news)
    if not refusals:
        refusals = checking.refused_keys(news, owner)
    if refusals:
        raise RequestRefused(refusals)

    askers = [requested_by] * len(news) if isinstance(requested_by, str) else requested_by
    rows = [
        _row(new, actions[_wanted(new)], queues[name] if name else None, asker, owner, now)
        for new, name, asker in zip(news, names, askers, strict=True)
    ]
    if settings.TRACES:
        return _accept_traced(rows, queues, owner, now, began_ns=began_ns)
    accepted, fresh = _accept(rows, queues, owner, now)
    transaction.on_commit(partial(relay.send_soon, _messages(fresh)))
    _tell(fresh, now)
    return accepted


def problems(news: Sequence[NewExecution]) -> list[Refusal]:
    """Find what `request_many` would refuse of these, if Muster itself asked. Whether their queues
    take anything is left aside, and nothing is written."""
    actions = _actions_of(news)
    refusals = [
        Refusal(index, pointer, message)
        for index, new in enumerate(news)
        for pointer, message in checking.problems(new, actions.get(_wanted(new)), {})
    ]
    names = [new.queue for new in news]
    refusals += holding.refusals(news, names, [actions.get(_wanted(new)) for new in news])
    return refusals or checking.refused_keys(news, 0)


def _wanted(new: NewExecution) -> Wanted:
    return new.action_ref, new.release_id


def _actions_of(news: Sequence[NewExecution]) -> dict[Wanted, Action]:
    """The actions that these ask for: as they are now, or, for a request that names a release, as
    that release defines them."""
    live = Action.objects.known_by_ref({new.action_ref for new in news})
    actions: dict[Wanted, Action] = {(ref, None): action for ref, action in live.items()}
    others = {
        wanted: (live[new.action_ref].pk, new.release_id)
        for new in news
        if (wanted := _wanted(new)) not in actions and new.action_ref in live
    }
    if others:
        accepted = Action.objects.known(set(others.values()))
        actions |= {wanted: accepted[key] for wanted, key in others.items()}
    return actions


def _accept(
    rows: Sequence[Execution], queues: Mapping[str, QueueTerms], owner: int, now: datetime
) -> tuple[list[Execution], list[Execution]]:
    """Insert the rows; returns what is accepted, and those of it that are new."""
    accepted = _insert(rows, queues, owner, now)
    return accepted, [row for row, stored in zip(rows, accepted, strict=True) if stored is row]


def _accept_traced(
    rows: Sequence[Execution],
    queues: Mapping[str, QueueTerms],
    owner: int,
    now: datetime,
    *,
    began_ns: int,
) -> list[Execution]:
    """Do the same, and write in the same transaction where the traces begin: an executor may look
    at once."""
    with transaction.atomic():
        accepted, fresh = _accept(rows, queues, owner, now)
        tracing.requested(fresh, began_ns=began_ns)
        placed = [row for row in fresh if row.status == ExecutionStatus.SCHEDULED]

        def send() -> None:
            relay.send_soon(_messages(fresh))
            tracing.scheduled([(row.key, row.worker_id) for row in placed], began_ns=began_ns)
            tracing.dispatched([row.key for row in placed], began_ns=began_ns)

        transaction.on_commit(send)
        _tell(fresh, now)
    return accepted


def _tell(fresh: Sequence[Execution], now: datetime) -> None:
    """Tell who listens; the history begins with the first transition, which those have that were
    placed at once."""
    ids = (row.pk for row in fresh)
    news.tell(Execution, ids, state=ExecutionStatus.REQUESTED, now=now, is_in_history=False)
    placed = (row.pk for row in fresh if row.status == ExecutionStatus.SCHEDULED)
    news.tell(Execution, placed, state=ExecutionStatus.SCHEDULED, now=now)


def _insert(
    rows: Sequence[Execution], queues: Mapping[str, QueueTerms], owner: int, now: datetime
) -> list[Execution]:
    """Insert the rows; returns them, or those that hold their idempotency keys already.

    A single one, in a statement that commits by itself, need not wait for BEGIN and COMMIT.
    """
    if len(rows) == 1 and placing.is_idle() and not admission.limits().concern(rows):
        is_new = placing.insert(rows[0], queues, now=now)
        return list(rows) if is_new else _with_taken_keys(rows, owner)
    if len(rows) == 1 and not _has_key(rows[0]):
        insert_many(rows)
        return list(rows)
    with transaction.atomic():
        if not any(map(_has_key, rows)):
            insert_many(rows)
            return list(rows)
        # a key that is taken is skipped and then looked up: no window between the two
        Execution.objects.bulk_create(rows, ignore_conflicts=True)
        return _with_taken_keys(rows, owner)


def _messages(rows: Sequence[Execution]) -> list[messages.Message]:
    """The dispatches of those that are placed, and what tells the executors of the others."""
    placed = [Dispatch.of(row) for row in rows if row.status == ExecutionStatus.SCHEDULED]
    others = [row.pk for row in rows if row.status != ExecutionStatus.SCHEDULED]
    return [*(message for message, _ in messages_for(placed)), *messages.requested(others)]


def require_permission(refs: Collection[str], *, principal: Principal, by: str) -> None:
    """Raise PermissionMissing unless the caller may run all these actions; `by`: what runs them."""
    for ref, action in Action.objects.known_by_ref(refs).items():
        if not authority.may(principal, "executions.run", action.place):
            raise PermissionMissing("executions.run", f"The action {ref}, which {by} runs,")
        _require_dangerous(action, principal)


def _runnable(actions: Mapping[Wanted, Action], principal: Principal) -> dict[Wanted, Action]:
    """Those of the actions that the caller may run. Raises PermissionMissing."""
    runnable = {
        wanted: action
        for wanted, action in actions.items()
        if authority.may(principal, "executions.run", action.place)
    }
    for action in runnable.values():
        _require_dangerous(action, principal)
    return runnable


def _require_dangerous(action: Action, principal: Principal) -> None:
    if action.dangerous and not authority.may(principal, DANGEROUS, action.place):
        raise PermissionMissing(DANGEROUS, f"The dangerous action {action.ref}")


def _known(workers: Mapping[int, Worker], principal: Principal) -> dict[int, Worker]:
    """Those of the workers that the caller knows of."""
    return {
        id: worker
        for id, worker in workers.items()
        if authority.may(principal, "workers.read", worker.place)
    }


def _has_key(row: Execution) -> bool:
    return row.idempotency_key is not None


def _with_taken_keys(rows: Sequence[Execution], owner: int) -> list[Execution]:
    """The rows, with each row whose key its owner used before replaced by the holder of that
    key."""
    keys = {row.idempotency_key for row in rows if _has_key(row)}
    taken = Execution.objects.filter(key_owner=owner, idempotency_key__in=keys)
    holders = {row.idempotency_key: row for row in taken}
    accepted = []
    for row in rows:
        holder = holders.get(row.idempotency_key)
        if not _has_key(row) or (holder is not None and holder.pk == row.pk):
            accepted.append(row)
            continue
        if holder is None:  # and so the row was not written
            raise IdempotencyKeyFreed
        if not _asks_the_same(row, holder):
            raise IdempotencyConflict(
                f"The idempotency key {row.idempotency_key!r} belongs to execution {holder.pk}, "
                "which has another action or other parameters"
            )
        accepted.append(holder)
    return accepted


def _asks_the_same(row: Execution, holder: Execution) -> bool:
    if row.action_ref != holder.action_ref:
        return False
    # only the database can say which numbers it stores as equal: jsonb turns 1e23 into an integer
    same = Execution.objects.filter(pk=holder.pk, parameters=row.parameters)
    return row.parameters == holder.parameters or same.exists()


def _merged(
    of_action: Mapping[str, Any], of_request: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The action's values overridden by the request's; None leaves the action's own, whatever they
    become."""
    return None if of_request is None else {**of_action, **of_request}


def _row(
    new: NewExecution,
    action: Action,
    queue: QueueTerms | None,
    requested_by: str,
    key_owner: int,
    now: datetime,
) -> Execution:
    retry = _merged(action.retry_policy, new.retry)
    if queue is not None:
        new, retry = queueing.with_defaults(new, queue), queueing.retry_policy(new, action, queue)
    deadline_seconds = (
        new.deadline_seconds
        or holding.deadline_seconds(action, new.parameters)
        or settings.MUSTER.deadline_seconds
    )
    return Execution(
        action=action,
        action_ref=action.ref,
        release_id=action.release.pk if action.release else action.pack.release_id,
        parameters=new.parameters,
        queue=queue.name if queue else None,
        lane=queueing.lane(new) if queue else None,
        retry_count=new.retry_count,
        priority=new.priority or 0,
        pinned_worker_id=new.worker_id,
        # an installed action may have more, and a vast limit fails the claim of a whole batch
        timeout_seconds=min(
            new.timeout_seconds
            or action.timeout_seconds
            or settings.MUSTER.default_timeout_seconds,
            LONGEST_TIMEOUT_SECONDS,
        ),
        queue_ttl_ms=new.queue_ttl_ms or action.queue_ttl_ms,
        scheduled_timeout_seconds=new.scheduled_timeout_seconds or action.scheduled_timeout_seconds,
        worker_selector=_merged(action.worker_selector, new.worker_selector),
        retry_policy=retry,
        deadline_at=now + timedelta(seconds=deadline_seconds),
        requested_by=requested_by,
        request_reason=new.reason[:REQUEST_REASON_MAX],
        correlation_id=new.correlation_id,
        idempotency_key=new.idempotency_key,
        key_owner=key_owner,
        created_at=now,
    )
