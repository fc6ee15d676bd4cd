"""Rules: installed, enabled, disabled, retired. Each change of what a rule says is a revision.

rules.install(NewRule(ref="shop.ship", trigger_type="shop.order", action_ref="shop.ship"), now=now)
rules.disable("shop.ship", now=now)    # events that are evaluated after the commit do not ask it
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from orchestrator.automation import (
    criteria,
    hook_paths,
    options,
    owners,
    parameters,
    schedules,
    triggers,
)
from orchestrator.automation.hooks.parameters import WEBHOOK
from orchestrator.automation.models import Revision, Rule, RuleRevision, Trigger
from orchestrator.automation.models.triggers import INVESTIGATION, REF
from orchestrator.automation.problems import InvalidDocument, Problem, nearest_or_all
from orchestrator.core import authority, executions, expressions, packs
from orchestrator.core.authority import Place, Principal
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Action, Pack
from orchestrator.core.packs import ContentReport
from orchestrator.core.schemas import canonical

CREATED, UPDATED, UNCHANGED = "created", "updated", "unchanged"


class UnknownRule(NotFound):
    """No rule has this name."""


class RuleIsRetired(Conflict):
    """The rule is no longer in its pack."""

    kind = "rule-is-retired"


class RuleTaken(Conflict):
    """A rule of this name belongs to another pack, or to none."""

    kind = "rule-taken"


@dataclass(frozen=True, kw_only=True)
class NewRule:
    """A rule as its author writes it."""

    ref: str
    trigger_type: str
    trigger_parameters: Mapping[str, Any] = field(default_factory=dict)
    criteria: Mapping[str, Any] = field(default_factory=dict)
    action_ref: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    enabled: bool = True


class Installed(NamedTuple):
    """A rule, and whether it was `created`, `updated` or `unchanged`."""

    rule: Rule
    outcome: str


def find(ref: str) -> Rule:
    """The rule of this name, with its trigger and what it says. Raises UnknownRule."""
    related = ("trigger__type", "revision", "owner__user", "pack")
    rule = Rule.objects.filter(ref=ref).select_related(*related).first()
    if rule is None:
        known = Rule.objects.filter(retired_at__isnull=True).values_list("ref", flat=True)
        near = f"; {nearest_or_all(ref, known)}" if known else ""
        raise UnknownRule(f"No rule is called {ref!r:.140}{near}")
    return rule


@transaction.atomic
def install(
    new: NewRule, *, pack: Pack | None = None, now: datetime, principal: Principal | None = None
) -> Installed:
    """Bring one rule in line with its description; installing it again changes nothing.

    `principal`: whose permissions count, now and whenever the rule runs its action: who changes a
    rule becomes its owner. Without one, Muster itself installs it. Raises InvalidDocument with all
    problems, RuleTaken and PermissionMissing.
    """
    Revision.objects.lock()
    if principal is not None:
        _require_permission(new, principal)
    problems = list(_problems(new, principal))
    trigger = None
    try:
        trigger = triggers.ensure(
            new.trigger_type, new.trigger_parameters, now=now, by_rule=new.ref, by_pack=pack
        )
    except InvalidDocument as invalid:
        problems += [problem.below("trigger") for problem in invalid.problems]
    if problems or trigger is None:
        raise InvalidDocument(problems)
    present = Rule.objects.select_for_update(no_key=True, of=("self",)).filter(ref=new.ref)
    rule = present.select_related("trigger__type", "revision").first()
    if rule is None:
        return Installed(_create(new, trigger, pack, now, principal), CREATED)
    if rule.pack_id != (pack.pk if pack else None):
        raise RuleTaken(f"The rule {rule} belongs to {rule.pack or 'no pack'}.")
    return Installed(rule, _change(rule, new, trigger, now, principal))


@transaction.atomic
def install_all(
    news: Sequence[NewRule], *, pack: Pack, now: datetime, principal: Principal | None = None
) -> ContentReport:
    """Bring the rules of a pack in line with these, all of them or none; those that are no longer
    among them are retired. Raises what `install` does, with the place of each problem."""
    refs: dict[str, list[str]] = {CREATED: [], UPDATED: [], UNCHANGED: []}
    problems: list[Problem] = []
    for new in news:
        try:
            outcome = install(new, pack=pack, now=now, principal=principal).outcome
        except InvalidDocument as invalid:
            problems += [problem.below(new.ref) for problem in invalid.problems]
        else:
            refs[outcome].append(new.ref)
    problems += _paths_taken([new.ref for new in news])
    if problems:
        raise InvalidDocument(problems)
    gone = Rule.objects.filter(pack=pack, retired_at__isnull=True)
    gone = gone.exclude(ref__in=[new.ref for new in news]).order_by("ref")
    disabled = [retire(rule.ref, now=now).ref for rule in gone]
    return ContentReport(
        tuple(refs[CREATED]), tuple(refs[UPDATED]), tuple(refs[UNCHANGED]), tuple(disabled)
    )


def _paths_taken(refs: Sequence[str]) -> Iterator[Problem]:
    """Problems of rules whose path the last one of them has, with other parameters."""
    rules = Rule.objects.filter(ref__in=refs).select_related("trigger__type").order_by("ref")
    for rule in hook_paths.without_path(list(rules)):
        path = rule.trigger.parameters["path"]
        message = f"the path {path!r} is that of another rule of the pack, with other parameters"
        yield Problem((rule.ref, "trigger", "parameters", "path"), message)


def enable(ref: str, *, now: datetime) -> Rule:
    """Have events ask the rule, whatever its pack says. Raises UnknownRule and RuleIsRetired."""
    return _switch(ref, enabled=True, now=now)


def disable(ref: str, *, now: datetime) -> Rule:
    """Have no event ask the rule that is evaluated after the commit. Raises UnknownRule and
    RuleIsRetired."""
    return _switch(ref, enabled=False, now=now)


@transaction.atomic
def retire(ref: str, *, now: datetime) -> Rule:
    """Take a rule out of use; its enforcements stay. Raises UnknownRule."""
    rule = _locked(ref)
    if rule.retired_at is None:
        rule.retired_at = now
        rule.save(update_fields=["retired_at"])
        _changed(rule.trigger, now=now)
    return rule


@transaction.atomic
def _switch(ref: str, *, enabled: bool, now: datetime) -> Rule:
    rule = _locked(ref)
    if rule.retired_at is not None:
        raise RuleIsRetired(f"The rule {rule} is no longer in its pack")
    if rule.enabled_override is not enabled:
        rule.enabled_override = enabled
        rule.save(update_fields=["enabled_override"])
        _changed(rule.trigger, now=now)
    return rule


def _locked(ref: str) -> Rule:
    Revision.objects.lock()
    find(ref)
    rows = Rule.objects.select_for_update(no_key=True, of=("self",)).select_related("trigger__type")
    return rows.get(ref=ref)


def _changed(*changed: Trigger, now: datetime) -> None:
    """Have timers and every process that keeps rules in memory follow, in this transaction."""
    for trigger in changed:
        triggers.follow_rules(trigger, now=now)
    Revision.objects.advance()


def _create(
    new: NewRule, trigger: Trigger, pack: Pack | None, now: datetime, principal: Principal | None
) -> Rule:
    rule = Rule.objects.create(
        ref=new.ref,
        pack=pack,
        trigger=trigger,
        enabled_by_pack=new.enabled,
        owner=owners.of(principal, now=now),
    )
    _revise(rule, new, 1, now, principal)
    _changed(trigger, now=now)
    return rule


def _change(
    rule: Rule, new: NewRule, trigger: Trigger, now: datetime, principal: Principal | None
) -> str:
    before, says_the_same = rule.trigger, rule.current.digest == digest_of(new)
    is_same = says_the_same and trigger == before and rule.enabled_by_pack == new.enabled
    if is_same and rule.retired_at is None:
        return UNCHANGED
    rule.trigger, rule.enabled_by_pack, rule.retired_at = trigger, new.enabled, None
    rule.owner = owners.of(principal, now=now)
    rule.save()
    if not says_the_same:
        _revise(rule, new, rule.current.number + 1, now, principal)
    _changed(*{before, trigger}, now=now)
    return UPDATED


def _revise(
    rule: Rule, new: NewRule, number: int, now: datetime, principal: Principal | None
) -> None:
    rule.revision = RuleRevision.objects.create(
        rule=rule,
        number=number,
        made_at=now,
        made_by=principal.actor if principal else "",
        digest=digest_of(new),
        **_content(new),
    )
    rule.save(update_fields=["revision"])


def _content(new: NewRule) -> dict[str, Any]:
    return {
        "description": new.description,
        "criteria": dict(new.criteria),
        "action_ref": new.action_ref,
        "parameters": dict(new.parameters),
        "options": dict(new.options),
    }


def digest_of(new: NewRule) -> str:
    """Return the same for rules that say the same."""
    return hashlib.sha256(str(canonical.key(_content(new))).encode()).hexdigest()


# --- what is wrong with a rule -------------------------------------------------------------------


def _require_permission(new: NewRule, principal: Principal) -> None:
    """Raise PermissionMissing unless the caller may install this rule: it will see the events, and
    run the action with the caller's permissions."""
    authority.require(principal, "rules.install", Place.of_ref(PACKS, new.ref))
    if new.trigger_type not in schedules.TYPES:
        authority.require(principal, "events.read", Place.of_ref(PACKS, new.trigger_type))
    if new.trigger_type == INVESTIGATION:
        # they are about all that is investigated, and may quote errors of actions and messages
        for permission in ("dlq.read", authority.PAYLOADS):
            authority.require(principal, permission, authority.WHOLE)
    if new.trigger_type == WEBHOOK:
        hook_paths.require_permission(new.trigger_parameters, principal=principal)
    executions.require_permission([new.action_ref], principal=principal, by=f"the rule {new.ref}")


def _problems(new: NewRule, principal: Principal | None) -> Iterator[Problem]:
    if not re.fullmatch(REF, new.ref) or len(new.ref) > 130:
        expected = "expected `pack.name` of at most 130 characters"
        yield Problem(("ref",), f"{expected}, found {new.ref!r:.140}")
    try:
        criteria.compile_criteria(new.criteria)
    except InvalidDocument as invalid:
        yield from (problem.below("criteria") for problem in invalid.problems)
    for problem in _action_problems(new, principal):
        yield problem.below("action")
    yield from options.problems(new.options)


def _action_problems(new: NewRule, principal: Principal | None) -> Iterator[Problem]:
    visible = Action.objects.all() if principal is None else Action.objects.visible_to(principal)
    action = visible.filter(ref=new.action_ref).first()
    if action is None:
        near = nearest_or_all(new.action_ref, visible.values_list("ref", flat=True))
        yield Problem(("ref",), f"no action is called {new.action_ref!r:.140}; {near}")
    if problems := parameters.check(new.parameters):
        yield from (problem.below("parameters") for problem in problems)
    elif action is not None and not any(expressions.texts(new.parameters)):
        for found in packs.validate_parameters(action, new.parameters):
            yield Problem(("parameters", *triggers.steps_of(found.pointer)), found.message)
