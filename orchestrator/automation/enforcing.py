"""From an enforcement to its execution, or to the reason why there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.automation import (
    batches,
    failing,
    metrics,
    owners,
    parameters,
    suppressing,
)
from orchestrator.automation.facts import facts_of
from orchestrator.automation.models import (
    Enforcement,
    Rule,
    RuleRevision,
    Suppression,
    Trigger,
)
from orchestrator.automation.options import OF_EXECUTIONS
from orchestrator.automation.states import Refused
from orchestrator.automation.suppressing import Same
from orchestrator.core import executions
from orchestrator.core.authority import PermissionMissing, Principal
from orchestrator.core.errors import Conflict
from orchestrator.core.executions import NewExecution, RequestRefused
from orchestrator.core.executions.checking import OWN_KEYS
from orchestrator.core.state_machine import Move


def enforce(enforcement_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Request the execution of each of these that is still open, or record why there is none;
    returns how many were settled.

    Safe to run twice, and at once with others: a row that another session holds is left to it. If
    a batch fails for one of them, each is settled alone, and the one to blame is rejected. Raises
    the database's error if that is away.
    """
    return batches.settle_all(
        enforcement_ids,
        partial(_enforce_together, now=now, actor=actor),
        give_up=partial(_give_up, now=now, actor=actor),
    )


def _enforce_together(ids: Sequence[UUID], *, now: datetime, actor: str) -> int:
    """Settle these in one transaction:

    1. Lock those that are open.
    2. Reject those whose owner may nothing any more, and those whose parameters have no value.
    3. Suppress those whose rule answered the same a moment ago.
    4. Request the executions of the others, as their owners; reject what is refused.
    """
    with transaction.atomic():
        turn = Turn(now, actor)
        answers = turn.prepare(_locked(ids))
        turn.settle(answers)
        return turn.write()


def _give_up(id: UUID, error: Exception, *, now: datetime, actor: str) -> int:
    with transaction.atomic():
        turn = Turn(now, actor)
        for row in _locked([id]):
            turn.decline(row, Refused.FAULT, repr(error))
        return turn.write()


def _locked(ids: Sequence[UUID]) -> list[Enforcement]:
    """Lock the open ones of these. Many of a batch have the same rules and triggers: each of those
    is read once. One alone is read in one statement."""
    wanted = Enforcement.objects.open().filter(pk__in=ids).locked()
    if len(ids) == 1:
        return list(wanted.select_related("rule", "revision", "event__trigger__type"))
    rows = list(wanted.select_related("event"))
    rules = Rule.objects.in_bulk({row.rule_id for row in rows})
    revisions = RuleRevision.objects.in_bulk({row.revision_id for row in rows})
    types = Trigger.objects.select_related("type")
    triggers = types.in_bulk({row.event.trigger_id for row in rows})
    for row in rows:
        row.rule, row.revision = rules[row.rule_id], revisions[row.revision_id]
        row.event.trigger = triggers[row.event.trigger_id]
    return rows


@dataclass
class Answer:
    """An enforcement with the execution that it wants."""

    row: Enforcement
    new: NewExecution
    same: Same | None = None
    """The identity of the equal answers that may suppress it."""
    seconds: float = 0.0


@dataclass
class Turn:
    """Enforcements whose rows are locked, and what was decided about them so far."""

    now: datetime
    actor: str
    executed: dict[UUID, UUID] = field(default_factory=dict)
    """Executions by enforcement."""
    rejected: dict[Refused, list[Move]] = field(default_factory=lambda: defaultdict(list))
    failed_rule_ids: set[int] = field(default_factory=set)
    """Rules of which an answer was rejected."""
    suppressed: list[Move] = field(default_factory=list)
    hits: list[Suppression] = field(default_factory=list)
    executed_rows: list[Enforcement] = field(default_factory=list)
    principals: Mapping[int, Principal] = field(default_factory=dict)

    def prepare(self, rows: Sequence[Enforcement]) -> list[Answer]:
        """The executions that these want; those that can want none are rejected."""
        owner_ids = {row.rule.owner_id for row in rows if row.rule.owner_id is not None}
        self.principals = owners.principals(owner_ids) if owner_ids else {}
        answers = []
        for row in rows:
            if row.rule.owner_id is not None and row.rule.owner_id not in self.principals:
                self.decline(row, Refused.OWNER, "the owner of the rule is disabled")
                continue
            try:
                answers.append(_answer(row))
            except parameters.InvalidParameters as error:
                self.decline(row, Refused.PARAMETERS, str(error))
        return answers

    def settle(self, answers: Sequence[Answer]) -> None:
        """Request, or suppress. Of several that are the same, one goes first, and the others wait
        until it is known whether that one has its execution."""
        rows = suppressing.locked([each.same for each in answers if each.same])
        waiting = list(answers)
        while waiting:
            first: dict[Same, Answer] = {}
            free, later = [], []
            for each in waiting:
                if each.same is None:
                    free.append(each)
                elif self._is_suppressed(each, rows[each.same]):
                    self.suppressed.append(_move(each.row))
                    self.hits.append(rows[each.same])
                elif each.same in first:
                    later.append(each)
                else:
                    first[each.same] = each
            self.request([*free, *first.values()])
            for same, each in first.items():
                if each.row.pk in self.executed:
                    until = each.row.event.received_at + timedelta(seconds=each.seconds)
                    suppressing.extend(rows[same], until)
            waiting = later

    def _is_suppressed(self, each: Answer, by: Suppression) -> bool:
        at = each.row.event.received_at
        return suppressing.is_suppressed(by, at, seconds=each.seconds, now=self.now)

    def request(self, answers: Sequence[Answer]) -> None:
        """Request the executions, those of each owner together."""
        by_owner: dict[int | None, list[Answer]] = defaultdict(list)
        for each in answers:
            by_owner[each.row.rule.owner_id].append(each)
        for owner_id, group in by_owner.items():
            self._request(group, None if owner_id is None else self.principals[owner_id])

    def _request(self, answers: Sequence[Answer], principal: Principal | None) -> None:
        """Request these; if some are refused, the others without them. Of one that is refused
        nothing is written, so there is nothing to undo."""
        try:
            with transaction.atomic() if len(answers) > 1 else nullcontext():
                rows = executions.request_many(
                    [each.new for each in answers],
                    requested_by=[f"rule:{each.row.rule.ref}" for each in answers],
                    now=self.now,
                    principal=principal,
                    with_own_keys=True,
                )
        except RequestRefused as refused:
            self._refuse(answers, refused)
            indices = {refusal.index for refusal in refused.refusals}
            rest = [each for index, each in enumerate(answers) if index not in indices]
            if rest:
                self._request(rest, principal)
        except (PermissionMissing, Conflict) as error:
            if len(answers) > 1:  # it does not say which
                for each in answers:
                    self._request([each], principal)
                return
            reason = Refused.OWNER if isinstance(error, PermissionMissing) else Refused.ACTION
            self.decline(answers[0].row, reason, str(error))
        else:
            for each, row in zip(answers, rows, strict=True):
                self.executed[each.row.pk] = row.pk
                self.executed_rows.append(each.row)

    def _refuse(self, answers: Sequence[Answer], refused: RequestRefused) -> None:
        problems: dict[int, list[str]] = defaultdict(list)
        for refusal in refused.refusals:
            problems[refusal.index].append(f"{refusal.pointer}: {refusal.message}")
        for index, messages in problems.items():
            self.decline(answers[index].row, Refused.ACTION, *messages)

    def decline(self, row: Enforcement, reason: Refused, *messages: str) -> None:
        """There is no execution, for this reason."""
        problem = {"messages": [message[:500] for message in messages[:20]]}
        self.rejected[reason].append(_move(row, problem=problem))
        self.failed_rule_ids.add(row.rule_id)

    def write(self) -> int:
        """Move the rows; returns how many. Nobody can interfere: they are locked."""
        moves = [_move(row, execution=self.executed[row.pk]) for row in self.executed_rows]
        moved = self._move("execute", moves)
        for reason, group in self.rejected.items():
            moved += self._move("reject", group, reason=reason)
        failing.investigate(self.failed_rule_ids, now=self.now, actor=self.actor)
        if self.rejected:
            metrics.REJECTED.add({reason: len(group) for reason, group in self.rejected.items()})
        moved += self._move("suppress", self.suppressed)
        suppressing.count(self.hits)
        return moved

    def _move(self, event: str, moves: Sequence[Move], *, reason: str | None = None) -> int:
        return len(
            Enforcement.objects.transition_many(
                event, moves, now=self.now, actor=self.actor, reason=reason
            )
        )


def _move(row: Enforcement, **values: Any) -> Move:
    return Move(row.pk, row.state, row.fence, values)


def _answer(row: Enforcement) -> Answer:
    """The execution that an enforcement wants. Raises InvalidParameters."""
    says, known = row.revision, _known(row)
    wanted = {name: says.options[name] for name in OF_EXECUTIONS if name in says.options}
    new = NewExecution(
        action_ref=says.action_ref,
        parameters=parameters.render(says.parameters, known),
        idempotency_key=f"{OWN_KEYS}enforcement:{row.pk}",
        correlation_id=row.event.correlation_id,
        **wanted,
    )
    suppress = says.options.get("suppress")
    if not suppress:
        return Answer(row, new)
    by = parameters.render({"by": suppress.get("by", "")}, known)["by"]
    return Answer(row, new, suppressing.same(row.rule_id, by), suppress["seconds"])


def _known(row: Enforcement) -> parameters.Known:
    facts, rule = facts_of(row.event), row.rule
    return parameters.Known(
        trigger=facts.trigger,
        event=facts.event,
        rule={"ref": rule.ref, "revision": row.revision.number},
        pack={"name": rule.place.name},
    )
