"""Changes of queues: applied from a definition, paused, resumed, retired. Each is an event.

changes.apply(definitions.new_queue(values), actor="cli:ann", now=now)
changes.pause("orders", reason="the shop is down", actor="cli:ann", now=now)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from orchestrator.core import executions, frame, spelling
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict, MusterError, NotFound
from orchestrator.core.models import Action, Execution, Pack
from orchestrator.core.packs.source import Where
from orchestrator.queues.definitions import NewQueue, key_of
from orchestrator.queues.models import Gate, QueueEvent, Ticket, WorkQueue
from orchestrator.queues.models.queues import REASON_MAX

CREATED, UPDATED, UNCHANGED = "created", "updated", "unchanged"

NEEDS_MIGRATION = ("broker", "input_queue", "retry_queue", "queue_type", "max_priority")
"""Fields of a gate whose change leaves queues behind in the broker, with what is in them."""

Kind = QueueEvent.Kind


class UnknownQueue(NotFound):
    """No queue has this name."""


class QueueIsRetired(Conflict):
    """The queue is retired; apply its definition again to use it again."""

    kind = "queue-is-retired"


class QueueOfPack(Conflict):
    """The queue belongs to a pack, and is changed by installing that."""

    kind = "queue-of-pack"


class RevisionDiffers(Conflict):
    """Somebody has changed the queue since it was read."""

    kind = "revision-differs"


class QueueHoldsWork(Conflict):
    """Work of this queue is open: let it end, or cancel it."""

    kind = "queue-holds-work"
    retry_after_seconds = 60


class InvalidQueue(MusterError):
    """The definition does not fit what is installed, and nothing was changed."""

    def __init__(self, problems: Sequence[tuple[Where, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(message for _, message in problems))


class Difference(NamedTuple):
    """One value that a definition changes."""

    key: str
    before: Any
    after: Any
    needs: str
    """The other work that has to be done for it; empty if it applies to what runs now."""


@dataclass(frozen=True)
class Applied:
    """The outcome of a definition."""

    name: str
    outcome: str
    """`created`, `updated` or `unchanged`."""
    differences: tuple[Difference, ...] = ()


def find(name: str) -> WorkQueue:
    """The queue of this name, retired or not. Raises UnknownQueue."""
    row: WorkQueue | None = _rows().filter(name=name).first()
    if row is None:
        raise UnknownQueue(_unknown(name))
    return row


def _unknown(name: str) -> str:
    known = list(WorkQueue.objects.in_use().values_list("name", flat=True)[:1_000])
    near = spelling.near(name, known)
    return f"No queue is called {name!r:.120}" + (f"; did you mean {near!r}?" if near else "")


def require_sender(gate: Gate, *, principal: Principal) -> None:
    """Raise PermissionMissing unless the caller may run every action that the gate runs."""
    own = gate.queue.action
    _require_runner(gate.queue.name, gate.classifiers, own.ref if own else None, principal)


def differences(new: NewQueue, *, principal: Principal | None = None) -> Applied:
    """The changes that applying this definition would make. `principal` as for `apply`. Raises
    InvalidQueue and PermissionMissing."""
    queue = _rows().filter(name=new.name).first()
    changed = () if queue is None else tuple(_differences(queue, new))
    is_in_use = queue is not None and queue.retired_at is None
    if principal is not None and not (is_in_use and _leaves_gate(changed)):
        _require_permission(new, principal)
    problems = list(_problems(new, queue))
    if problems:
        raise InvalidQueue(problems)
    if queue is None:
        return Applied(new.name, CREATED)
    return Applied(new.name, UNCHANGED if is_in_use and not changed else UPDATED, changed)


@transaction.atomic
def apply(
    new: NewQueue,
    *,
    actor: str,
    now: datetime,
    reason: str = "",
    pack: Pack | None = None,
    revision: int | None = None,
    principal: Principal | None = None,
) -> Applied:
    """Bring one queue in line with its definition; the same one again changes nothing, and a pause
    stays. A retired queue is in use again.

    `pack`: which brings it; one that belongs to a pack is changed by that alone. `revision`: the
    one that its author has read; 0 if there must be none. `principal`: whose permissions count;
    without one, Muster itself applies it. Who makes or changes a gate must be permitted to run all
    actions that it runs. Raises InvalidQueue, QueueOfPack, RevisionDiffers and PermissionMissing.
    """
    queue = _locked(new.name)
    present = 0 if queue is None else queue.revision
    if revision is not None and revision != present:
        raise RevisionDiffers(_differs(new.name, queue, revision))
    if queue is not None and queue.retired_at is None:
        _require_owner(queue, pack)
    applied = differences(new, principal=principal)
    if applied.outcome == UNCHANGED:
        return applied
    if queue is None:
        queue, kind = WorkQueue(name=new.name, created_at=now, revision=0), Kind.CREATED
    else:
        kind = Kind.CHANGED
    for name, value in new.values.items():
        setattr(queue, name, _action(value) if name == "action" else value)
    queue.pack, queue.retired_at, queue.updated_at = pack, None, now
    queue.revision += 1
    queue.save()
    _save_gate(queue, new.gate)
    changed = ", ".join(each.key for each in applied.differences)
    _note(queue, kind, actor=actor, reason=reason or changed, now=now)
    return applied


def _differs(name: str, queue: WorkQueue | None, revision: int) -> str:
    if queue is None:
        return f"There is no queue {name}: it cannot be at revision {revision}"
    if revision:
        return f"The queue {name} is at revision {queue.revision}, not {revision}"
    if queue.retired_at is not None:
        return f"The queue {name} exists, and is retired: `queue apply` has it in use again"
    return f"The queue {name} exists already: `queue apply` changes it"


def pause(name: str, *, reason: str, actor: str, now: datetime) -> WorkQueue:
    """Start nothing of this queue from now on; it accepts, and what was given to workers goes on.

    Another call changes the reason. Raises UnknownQueue and QueueIsRetired.
    """
    with transaction.atomic():
        queue = _in_use(name)
        if not queue.is_paused or queue.pause_reason != reason[:REASON_MAX]:
            queue.paused_at = queue.paused_at or now
            queue.pause_reason, queue.paused_by = reason[:REASON_MAX], actor[:150]
            queue.save(update_fields=["paused_at", "pause_reason", "paused_by"])
            _note(queue, Kind.PAUSED, actor=actor, reason=reason, now=now)
    return queue


def resume(name: str, *, reason: str, actor: str, now: datetime) -> WorkQueue:
    """Start work of this queue again. Raises UnknownQueue and QueueIsRetired."""
    with transaction.atomic():
        queue = _in_use(name)
        if queue.is_paused:
            queue.paused_at, queue.pause_reason, queue.paused_by = None, "", ""
            queue.save(update_fields=["paused_at", "pause_reason", "paused_by"])
            _note(queue, Kind.RESUMED, actor=actor, reason=reason, now=now)
    return queue


@transaction.atomic
def close(name: str, *, actor: str, now: datetime) -> WorkQueue:
    """Accept nothing more; what is in the queue goes on. Raises UnknownQueue and
    QueueIsRetired."""
    queue = _in_use(name)
    _close(queue, actor=actor, reason="accepts: no longer in its pack", now=now)
    return queue


def _close(queue: WorkQueue, *, actor: str, reason: str, now: datetime) -> None:
    if queue.accepts:
        queue.accepts, queue.revision, queue.updated_at = False, queue.revision + 1, now
        queue.save(update_fields=["accepts", "revision", "updated_at"])
        _note(queue, Kind.CHANGED, actor=actor, reason=reason, now=now)


def retire(name: str, *, reason: str, actor: str, now: datetime) -> WorkQueue:
    """Take a queue out of use, once none of its work is open and every answer was confirmed. Safe
    to repeat.

    Until then it accepts nothing more, and the call is to be repeated. Raises UnknownQueue, and
    QueueHoldsWork after it has closed the queue.
    """
    with transaction.atomic():
        queue = _locked(name)
        if queue is None:
            raise UnknownQueue(_unknown(name))
        if queue.retired_at is not None:
            return queue
        _close(queue, actor=actor, reason="accepts: to be retired", now=now)
        holds = _held(queue)
        if not holds:
            queue.retired_at, queue.paused_at = now, None
            queue.pause_reason = queue.paused_by = ""
            queue.save(update_fields=["retired_at", "paused_at", "pause_reason", "paused_by"])
            _note(queue, Kind.RETIRED, actor=actor, reason=reason, now=now)
    if holds:
        raise QueueHoldsWork(
            f"The queue {name} accepts nothing more, and is not retired yet: it has {holds}"
        )
    return queue


def _held(queue: WorkQueue) -> str:
    """The work that is still owed for a queue, as text."""
    has_open = Execution.objects.open().in_queue(queue.name).exists()
    has_untold = Ticket.objects.filter(gate=queue.pk, told_at__isnull=True).exists()
    return " and ".join(
        text
        for text, is_there in (
            ("open executions", has_open),
            ("tickets without an answer", has_untold),
        )
        if is_there
    )


# --- parts ---------------------------------------------------------------------------------------


def _rows() -> Any:
    return WorkQueue.objects.select_related("action", "pack", "gate")


def _locked(name: str) -> WorkQueue | None:
    return WorkQueue.objects.select_for_update(no_key=True).filter(name=name).first()


def _in_use(name: str) -> WorkQueue:
    """Lock a queue until the transaction ends. Raises UnknownQueue and QueueIsRetired."""
    queue = _locked(name)
    if queue is None:
        raise UnknownQueue(_unknown(name))
    if queue.retired_at is not None:
        raise QueueIsRetired(f"The queue {name} is retired; apply its definition to use it again")
    return queue


def _require_owner(queue: WorkQueue, pack: Pack | None) -> None:
    if queue.pack_id is not None and queue.pack_id != (pack.pk if pack else None):
        raise QueueOfPack(f"The queue {queue} belongs to the pack {queue.pack}")
    if queue.pack_id is None and pack is not None:
        raise QueueOfPack(f"The queue {queue} belongs to no pack: it was made by hand")


def _action(ref: str | None) -> Action | None:
    return None if ref is None else Action.objects.get(ref=ref)


def _leaves_gate(changed: Sequence[Difference]) -> bool:
    """Return True if what the gate does is the same as before."""
    return not any(each.key == "action" or each.key.startswith("gate.") for each in changed)


def _require_permission(new: NewQueue, principal: Principal) -> None:
    """Raise PermissionMissing unless the caller may run every action that the gate runs: whoever
    sends it a message is nobody whom Muster knows, so its executions are checked nowhere else."""
    if new.gate is not None:
        _require_runner(new.name, new.gate["classifiers"], new.values["action"], principal)


def _require_runner(
    queue: str, classifiers: Mapping[str, Any], own: str | None, principal: Principal
) -> None:
    refs = {each["action"] for each in classifiers.values()} | ({own} if own else set())
    executions.require_permission(refs, principal=principal, by=f"the gate of the queue {queue}")


def _problems(new: NewQueue, queue: WorkQueue | None) -> Any:
    """The values that do not fit other rows, as paths and messages."""
    ref = new.values["action"]
    classifiers = {} if new.gate is None else new.gate["classifiers"]
    refs: dict[tuple[str, ...], str] = {} if ref is None else {("action",): ref}
    refs |= {
        ("gate", "classifiers", name, "action"): each["action"]
        for name, each in classifiers.items()
    }
    rows = Action.objects.filter(ref__in=list(refs.values()))
    known = {row.ref: row for row in rows.only("ref", "runtime", "idempotent")}
    for where, wanted in refs.items():
        if wanted not in known:
            yield where, f"{'.'.join(where)}: no action is called {wanted!r}"
        elif known[wanted].runtime in frame.held_runtimes():
            message = f"expected an action that workers run, found {wanted!r}"
            yield where, f"{'.'.join(where)}: {message}"
    if new.gate is None:
        if queue is not None and hasattr(queue, "gate") and _owes(queue):
            yield ("gate",), "gate: expected to stay, as tickets of it have no answer yet"
        return
    risky = sorted(ref for ref, action in known.items() if not action.idempotent)
    if risky and not new.gate["once"]:
        yield (
            ("gate", "once"),
            f"gate.once: expected true, as {', '.join(risky)} may not be started again once its "
            "outcome is unknown: declare it idempotent, or confirm that such tasks are not retried",
        )
    others = Gate.objects.filter(broker=new.gate["broker"]).exclude(queue__name=new.name)
    for other in others.select_related("queue").order_by("queue__name"):
        for key in ("input_queue", "retry_queue"):
            name = new.gate[key]
            if name and name in (other.input_queue, other.retry_queue):
                message = f"gate.{key}: expected a queue of its own, found {name!r}, of the queue "
                yield ("gate", key), f"{message}{other.queue}"


def _owes(queue: WorkQueue) -> bool:
    return Ticket.objects.filter(gate=queue.pk).exists()


def _differences(queue: WorkQueue, new: NewQueue) -> Any:
    for name, after in new.values.items():
        before = getattr(queue, name)
        if name == "action":
            before = before.ref if before else None
        if before != after:
            yield Difference(key_of(name, of_gate=False), before, after, "")
    gate = getattr(queue, "gate", None)
    if new.gate is None:
        if gate is not None:
            yield Difference("gate", gate.input_queue, None, "its queues stay in the broker")
        return
    for name, after in new.gate.items():
        before = None if gate is None else getattr(gate, name)
        if before != after:
            needs = ""
            if gate is not None and name in NEEDS_MIGRATION:
                needs = "the queue that is there keeps its messages and its arguments: move them"
            yield Difference(key_of(name, of_gate=True), before, after, needs)


def _save_gate(queue: WorkQueue, values: Mapping[str, Any] | None) -> None:
    if values is None:
        Gate.objects.filter(queue=queue).delete()
        return
    Gate.objects.update_or_create(queue=queue, defaults=dict(values))


def _note(queue: WorkQueue, kind: Kind, *, actor: str, reason: str, now: datetime) -> None:
    QueueEvent.objects.create(
        queue=queue,
        kind=kind,
        revision=queue.revision,
        actor=actor[:150],
        reason=reason[:REASON_MAX],
        at=now,
    )
