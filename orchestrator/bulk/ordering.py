"""Order and stop, and what an order would be about."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import transaction

from orchestrator.bulk import messages, orderers, verbs
from orchestrator.bulk.models import IDS_OF_PART, BulkOrder, BulkPart
from orchestrator.bulk.models.orders import KEY_MAX, REASON_MAX
from orchestrator.bulk.verbs import ORDER, Verb
from orchestrator.core import authority, json_values, relay
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict, NotFound, Refusal, Refused
from orchestrator.core.state_machine import TransitionConflict, transition

IDS_MAX = 500
"""Ids that an order may name one by one."""
STOP_TRIES = 5


class OrderRefused(Refused):
    """The order was refused and left no row."""


class NothingMatches(Conflict):
    """Nothing matches: there is nothing to do."""

    kind = "nothing-matches"


class MoreMatch(Conflict):
    """More rows match than were counted before."""

    kind = "more-match"


class OrderKeyTaken(Conflict):
    """This idempotency key was used before, for another order."""

    kind = "idempotency-conflict"


class OrderHasEnded(Conflict):
    """The order has ended; there is nothing to stop."""

    kind = "already-over"


class UnknownOrder(NotFound):
    """No bulk order has this id."""


@dataclass(frozen=True)
class Wish:
    """The order that somebody wants to give."""

    verb: str
    query: str = ""
    ids: Sequence[UUID] = ()
    """Instead of a search: these rows."""
    reason: str = ""
    resolution: str = ""
    """For the verb `close`."""
    idempotency_key: str | None = None
    up_to: UUID | None = None
    """The last row that the orderer was told of: later ones are left out."""
    at_most: int | None = None
    """The number of rows that the orderer was told: if more match, nothing is ordered."""

    def as_columns(self) -> dict[str, str]:
        """The columns of what is wanted: a key is of orders that are equal in these columns."""
        named = ",".join(sorted({str(id) for id in self.ids}))
        return {
            "verb": self.verb,
            "query": self.query.strip(),
            "ids_digest": hashlib.sha256(named.encode()).hexdigest() if named else "",
            "resolution": self.resolution,
        }


@dataclass(frozen=True)
class Foreseen:
    """The rows that an order would be about now."""

    verb: Verb
    ids: list[UUID]
    looked_from: datetime | None

    @property
    def matched(self) -> int:
        return len(self.ids)

    @property
    def up_to(self) -> UUID | None:
        """The last of the rows."""
        return self.ids[-1] if self.ids else None


def foresee(wish: Wish, *, principal: Principal, now: datetime) -> Foreseen:
    """Count what an order would be about. Nothing is written.

    Raises UnknownVerb, PermissionMissing, NotUnderstood, SearchNeeded, MatchesTooMany and
    LooksTooLong.
    """
    verb = verbs.named(wish.verb)
    for permission in (ORDER, verb.permission):
        authority.require(principal, permission)
    wanted = verb.noun.wanted(wish.query, wish.ids, principal=principal, now=now)
    return Foreseen(verb, wanted.ids(up_to=wish.up_to), wanted.looked_from)


def order(wish: Wish, *, principal: Principal, now: datetime) -> BulkOrder:
    """Order it for all rows that match now; returns the order, or the one that its idempotency key
    had made before.

    Raises OrderRefused, OrderKeyTaken, NothingMatches, MoreMatch, NobodyToActFor, and what
    `foresee` raises.
    """
    verb = verbs.named(wish.verb)
    if refusals := _refusals(wish, verb):
        raise OrderRefused(refusals)
    orderer = orderers.of(principal, now=now)
    if (first := _first_use(wish, orderer.key_owner)) is not None:
        return first
    foreseen = foresee(wish, principal=principal, now=now)
    _check_count(wish, foreseen)
    row = BulkOrder(
        looked_from=foreseen.looked_from,
        reason=wish.reason.strip(),
        idempotency_key=wish.idempotency_key,
        matched=foreseen.matched,
        created_at=now,
        **wish.as_columns(),
        **orderer.as_columns(),
    )
    return _kept(row, foreseen.ids, wish)


def stop(order_id: UUID, *, principal: Principal, reason: str, now: datetime) -> BulkOrder:
    """Stop an order: the batch in process is finished, and none follows. Waits for that batch.

    Raises UnknownOrder, OrderRefused and OrderHasEnded.
    """
    if fault := _reason_fault(reason):
        raise OrderRefused([Refusal(0, "/reason", fault)])
    for _ in range(STOP_TRIES):
        row = found(order_id, principal, ORDER)
        if not row.is_open:
            raise OrderHasEnded(f"Bulk order {order_id} is {row.state}")
        try:
            return transition(
                row, "stop", now=now, actor=principal.actor, reason=reason.strip(),
                ended_by=principal.actor,
            )  # fmt: skip
        except TransitionConflict:
            continue  # it has begun, or ended, meanwhile: look again
    raise TransitionConflict(f"Bulk order {order_id} keeps changing; try again")


def found(order_id: UUID, principal: Principal, permission: str = "bulk.read") -> BulkOrder:
    """An order that the caller may see. Raises UnknownOrder."""
    row = BulkOrder.objects.visible_to(principal, permission).filter(pk=order_id).first()
    if row is None:
        raise UnknownOrder(f"No bulk order has the id {order_id}")
    return row


def _refusals(wish: Wish, verb: Verb) -> list[Refusal]:
    problems = [("/reason", _reason_fault(wish.reason))]
    if bool(wish.query.strip()) == bool(wish.ids):
        problems.append(("/query", "expected a search, or ids, and not both"))
    if len(wish.ids) > IDS_MAX:
        problems.append(("/ids", f"expected at most {IDS_MAX} ids, found {len(wish.ids)}"))
    if verb.resolutions and wish.resolution not in verb.resolutions:
        problems.append(("/resolution", f"expected one of {', '.join(verb.resolutions)}"))
    if wish.resolution and not verb.resolutions:
        problems.append(("/resolution", f"expected none: {verb.name} has no resolution"))
    if wish.idempotency_key is not None and not 1 <= len(wish.idempotency_key) <= KEY_MAX:
        problems.append(("/idempotency_key", f"expected 1 to {KEY_MAX} characters"))
    return [Refusal(0, pointer, message) for pointer, message in problems if message]


def _reason_fault(reason: str) -> str:
    if not 1 <= len(reason.strip()) <= REASON_MAX:
        return f"expected a reason of 1 to {REASON_MAX} characters"
    fault = json_values.text_fault(reason)
    return f"contains {fault}" if fault else ""


def _check_count(wish: Wish, foreseen: Foreseen) -> None:
    noun = foreseen.verb.noun.name
    if not foreseen.matched:
        raise NothingMatches(f"No {noun} match: there is nothing to do")
    if wish.at_most is not None and foreseen.matched > wish.at_most:
        raise MoreMatch(
            f"{foreseen.matched:,} {noun} match now, not {wish.at_most:,}; nothing was ordered"
        )


def _first_use(wish: Wish, key_owner: int) -> BulkOrder | None:
    """The order that this idempotency key has made. Raises OrderKeyTaken."""
    if wish.idempotency_key is None:
        return None
    rows = BulkOrder.objects.filter(key_owner=key_owner, idempotency_key=wish.idempotency_key)
    row = rows.first()
    if row is None:
        return None
    wanted = wish.as_columns()
    if not (row.query or row.ids_digest):
        del wanted["ids_digest"]  # a version that stored none has made it
    if wanted != {name: getattr(row, name) for name in wanted}:
        raise OrderKeyTaken(f"The idempotency key belongs to bulk order {row.pk}, another one")
    return row


def _kept(row: BulkOrder, ids: Collection[UUID], wish: Wish) -> BulkOrder:
    """Write the order and its ids, unless its key was used at the same moment."""
    listed = [str(id) for id in ids]
    parts = [
        BulkPart(order=row, number=number, ids=listed[start : start + IDS_OF_PART])
        for number, start in enumerate(range(0, len(listed), IDS_OF_PART))
    ]
    with transaction.atomic():
        # a key that is taken is skipped and then looked up: no window between the two
        BulkOrder.objects.bulk_create([row], ignore_conflicts=wish.idempotency_key is not None)
        first = _first_use(wish, row.key_owner)
        if first is not None and first.pk != row.pk:
            return first
        BulkPart.objects.bulk_create(parts)
        transaction.on_commit(partial(relay.send_soon, messages.ordered(row.pk)))
    return row
