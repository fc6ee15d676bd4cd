"""Changes of policies: made, changed, removed. What runs is never stopped by one.

changes.create(definitions.of_document(values), now=now)
changes.change("one-deploy", {"limit": 3}, now=now)

What waits is looked at again after each change: those for whom there is a place now, and all of
them, batch by batch, if the policy limits nothing any more. A policy holds everywhere within a
second: that long other processes may know the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from orchestrator.core import spelling
from orchestrator.core.errors import Conflict, MusterError, NotFound
from orchestrator.core.models import Action, Pack
from orchestrator.core.packs.source import Where
from orchestrator.policies import adopting, book, definitions, figures, waking
from orchestrator.policies.definitions import NewPolicy
from orchestrator.policies.models import Policy, PolicySlot, PolicyWait

CREATED, UPDATED, UNCHANGED = "created", "updated", "unchanged"

COUNTED_BY = ("kind", "scope", "target", "keyed_by", "period", "timezone")
"""The values that say what is counted, and how: after a change of one of these it is counted from
the beginning."""

OF_OPERATORS = ("enabled",)
"""The values that an operator may change of a policy that belongs to a pack; its files do not say
them again."""


class UnknownPolicy(NotFound):
    """No policy has this name."""


class PolicyExists(Conflict):
    """There is a policy of this name."""

    kind = "policy-exists"


class PolicyOfPack(Conflict):
    """The policy belongs to a pack, and is changed by installing that; it can be disabled."""

    kind = "policy-of-pack"


class InvalidPolicy(MusterError):
    """The definition does not fit, and nothing was changed."""

    def __init__(self, problems: Sequence[tuple[Where, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(message for _, message in problems))


def find(ref: str) -> Policy:
    """The policy of this name. Raises UnknownPolicy."""
    policy = Policy.objects.in_use().select_related("pack").filter(ref=ref).first()
    if policy is None:
        raise UnknownPolicy(_unknown(ref))
    return policy


def _unknown(ref: str) -> str:
    known = list(Policy.objects.in_use().values_list("ref", flat=True)[:1_000])
    near = spelling.near(ref, known)
    return f"No policy is called {ref!r:.130}" + (f"; did you mean {near!r}?" if near else "")


@transaction.atomic
def create(new: NewPolicy, *, now: datetime, pack: Pack | None = None) -> Policy:
    """Make a policy; a name that was removed can be used again. What runs already is counted.
    Raises InvalidPolicy and PolicyExists."""
    if pack is None and "." in new.ref:
        message = "ref: expected a name without a dot: those with one belong to packs"
        raise InvalidPolicy([(("ref",), message)])
    _require_targets(new.values)
    policy = _locked(new.ref)
    if policy is not None and policy.retired_at is None:
        raise PolicyExists(f"There is a policy called {new.ref}")
    if policy is None:
        policy = Policy(ref=new.ref, created_at=now)
    policy.pack, policy.retired_at = pack, None
    _write(policy, new.values, now=now)
    _recount(policy, now=now)
    return policy


@transaction.atomic
def change(ref: str, values: Mapping[str, Any], *, now: datetime) -> Policy:
    """Change these values of a policy, which must be valid together with the others; None is the
    default. Raises UnknownPolicy, InvalidPolicy and PolicyOfPack."""
    policy = _locked(ref)
    if policy is None or policy.retired_at is not None:
        raise UnknownPolicy(_unknown(ref))
    if policy.pack is not None and values.keys() - set(OF_OPERATORS):
        raise PolicyOfPack(f"The policy {ref} belongs to the pack {policy.pack}")
    merged = {**document_of(policy), **values}
    merged = {name: value for name, value in merged.items() if value is not None}
    source = definitions.source_of(merged, name=ref)
    definitions.check_document(source)
    if "ref" in values and values["ref"] != ref:
        source.problem(("ref",), f"ref: expected {ref}, which cannot be changed")
    if source.problems:
        raise InvalidPolicy([(each.where, each.message) for each in source.problems])
    new = definitions.of_document(merged)
    _require_targets(new.values)
    _apply(policy, new, now=now)
    return policy


@transaction.atomic
def remove(ref: str, *, now: datetime) -> Policy:
    """Have a policy limit nothing any more. Raises UnknownPolicy and PolicyOfPack."""
    policy = _locked(ref)
    if policy is None or policy.retired_at is not None:
        raise UnknownPolicy(_unknown(ref))
    if policy.pack is not None:
        raise PolicyOfPack(f"The policy {ref} belongs to the pack {policy.pack}: disable it")
    retire(policy, now=now)
    return policy


def retire(policy: Policy, *, now: datetime) -> None:
    """Take a policy out of use, in the caller's transaction."""
    policy.retired_at = policy.updated_at = now
    policy.save()
    transaction.on_commit(book.forget)
    _look_again(policy, now=now)


@transaction.atomic
def install(new: NewPolicy, *, pack: Pack, now: datetime) -> str:
    """Bring one policy in line with its file; returns the outcome. Raises InvalidPolicy and
    PolicyOfPack."""
    policy = _locked(new.ref)
    if policy is None or policy.retired_at is not None:
        create(new, now=now, pack=pack)
        return CREATED
    if policy.pack_id != pack.pk:
        raise PolicyOfPack(f"The policy {new.ref} does not belong to the pack {pack}")
    _require_targets(new.values)
    kept = {name: getattr(policy, name) for name in OF_OPERATORS}
    changed = _apply(policy, NewPolicy(new.ref, {**new.values, **kept}), now=now)
    return UPDATED if changed else UNCHANGED


def document_of(policy: Policy) -> dict[str, Any]:
    """The policy as a document says it, without what is not set."""
    names = (*definitions.COMMON, "ref", "scope", "target")
    values = {name: getattr(policy, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, "")}


# --- parts ---------------------------------------------------------------------------------------


def _locked(ref: str) -> Policy | None:
    rows = Policy.objects.select_for_update(no_key=True, of=("self",)).select_related("pack")
    return rows.filter(ref=ref).first()


def _apply(policy: Policy, new: NewPolicy, *, now: datetime) -> bool:
    """Write these values if they differ; returns True if they did."""
    changed = {name for name, value in new.values.items() if getattr(policy, name) != value}
    if not changed:
        return False
    _write(policy, new.values, now=now)
    if changed & set(COUNTED_BY):
        _recount(policy, now=now)
        return True
    if "window_seconds" in changed:
        figures.shorten_debt(policy, now=now)
    if "enabled" in changed:
        _adopt(policy, now=now)
    _look_again(policy, now=now)
    return True


def _write(policy: Policy, values: Mapping[str, Any], *, now: datetime) -> None:
    for name, value in values.items():
        setattr(policy, name, value)
    policy.updated_at = now
    policy.save()
    transaction.on_commit(book.forget)


def _recount(policy: Policy, *, now: datetime) -> None:
    """Forget what was counted, and count what runs. Those that wait are in no line then: those that
    are not made due at once, maintenance finds."""
    # first of all: who starts something of it at this moment writes what it counted
    held = policy.buckets.all().hold()
    _make_due(policy, now=now)
    # only of these: in one that is made meanwhile somebody counts, and maintenance adopts that
    PolicyWait.objects.filter(bucket__in=held).delete()
    PolicySlot.objects.filter(bucket__in=held).delete()
    policy.buckets.filter(pk__in=held).delete()
    _adopt(policy, now=now)


def _adopt(policy: Policy, *, now: datetime) -> None:
    adopting.adopt(Policy.objects.in_force().filter(pk=policy.pk), now=now)


def _look_again(policy: Policy, *, now: datetime) -> None:
    """Make due what may start now. In the transaction of a change, so never much at once:
    maintenance goes on."""
    if policy.is_in_force:
        waking.first_of(policy.buckets.all(), now=now, ahead=waking.LOOKS_AHEAD)
    else:
        _make_due(policy, now=now)


def _make_due(policy: Policy, *, now: datetime) -> None:
    """Make due the first ones that wait for a policy."""
    waits = PolicyWait.objects.waiting().filter(bucket__policy=policy)
    first = waits.order_by("-priority", "execution_id").values_list("execution_id", flat=True)
    waking.make_due(list(first[: waking.AT_ONCE]), now=now)


def _require_targets(values: Mapping[str, Any]) -> None:
    """Raise InvalidPolicy unless the pack or action that it names is installed."""
    scope, target = values["scope"], values["target"]
    rows: Any = {
        Policy.Scope.PACK: Pack.objects.filter(name=target),
        Policy.Scope.ACTION: Action.objects.filter(ref=target),
    }.get(scope)
    if rows is None or rows.exists():
        return
    field = "name" if scope == Policy.Scope.PACK else "ref"
    known = list(rows.model.objects.values_list(field, flat=True)[:1_000])
    near = spelling.near(target, known)
    hint = f"; did you mean {near!r}?" if near else ""
    raise InvalidPolicy([(("target",), f"target: no {scope} is called {target!r:.160}{hint}")])
