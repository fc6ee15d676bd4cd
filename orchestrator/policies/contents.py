"""Policies of packs, installed with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.models import Pack
from orchestrator.core.packs import ContentProblem, ContentRefused, ContentReport
from orchestrator.policies import changes, definitions
from orchestrator.policies.changes import CREATED, UNCHANGED, UPDATED, InvalidPolicy
from orchestrator.policies.models import Policy

NEW = float("inf")


def install(
    values: Sequence[Mapping[str, Any]],
    *,
    pack: Pack,
    now: datetime,
    principal: Principal | None = None,
) -> ContentReport:
    """Bring the policies of a pack in line with its files; one that an operator has disabled stays
    so. Raises ContentRefused, PolicyOfPack and PermissionMissing."""
    if values and principal is not None:
        authority.require(principal, "policies.change")
    refs: dict[str, list[str]] = {CREATED: [], UPDATED: [], UNCHANGED: []}
    problems: list[ContentProblem] = []
    # in the order in which executors hold their buckets
    known = dict(Policy.objects.filter(pack=pack).values_list("ref", "pk"))
    for each in sorted(values, key=lambda each: known.get(f"{pack.name}.{each['name']}", NEW)):
        new = definitions.of_file(each, pack=pack.name)
        try:
            outcome = changes.install(new, pack=pack, now=now)
        except InvalidPolicy as invalid:
            scope = new.values["scope"]
            problems += [
                ContentProblem((each["name"],), (scope,), message.replace("target", scope, 1))
                for _, message in invalid.problems
            ]
        else:
            refs[outcome].append(new.ref)
    if problems:
        raise ContentRefused(problems)
    gone = Policy.objects.in_use().filter(pack=pack)
    gone = gone.exclude(ref__in=[ref for theirs in refs.values() for ref in theirs])
    removed = [policy.ref for policy in gone]
    for policy in gone:
        changes.retire(policy, now=now)
    return ContentReport(
        tuple(refs[CREATED]), tuple(refs[UPDATED]), tuple(refs[UNCHANGED]), tuple(removed)
    )
