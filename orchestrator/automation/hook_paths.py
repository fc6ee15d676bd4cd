"""The paths of webhooks: which trigger has which. The table is the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction

from orchestrator.automation.hooks import parameters as hook_parameters
from orchestrator.automation.hooks.parameters import LONGEST_PATH, PATH
from orchestrator.automation.models import Rule, Trigger, Webhook
from orchestrator.automation.problems import InvalidDocument, Problem
from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Pack
from orchestrator.core.packs import value_schema_problems

ADDRESS = "/api/v1/hooks/"
INSTALLATION = "installation"


def find(path: str) -> Webhook | None:
    """The hook at this path. What can be no path costs no query."""
    if len(path) > LONGEST_PATH or PATH.fullmatch(path) is None:
        return None
    return Webhook.objects.at(path)


def address_of(hook: Webhook) -> str:
    """The address that deliveries are sent to, below the address of the API."""
    return f"{ADDRESS}{hook.path}"


def problems(parameters: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what is wrong with the parameters of a hook that fit the schema of their type."""
    yield from hook_parameters.problems(parameters)
    for fault in value_schema_problems(parameters.get("schema", {})):
        yield Problem(("schema", *fault.where), fault.message)


def require_permission(parameters: Mapping[str, Any], *, principal: Principal) -> None:
    """Raise PermissionMissing unless the caller may make triggers in the packs whose keys a hook is
    to use: who knows what a key accepts has a part of it."""
    given = parameters.get("secrets")
    for each in given if isinstance(given, list) else ():
        reference = each.get("$key") if isinstance(each, Mapping) else None
        owner = str(reference or "").partition("/")[0]
        if owner and owner != INSTALLATION:
            authority.require(principal, "triggers.change", Place(PACKS, owner))


def claim(trigger: Trigger, *, by_rule: str = "", by_pack: Pack | None = None) -> None:
    """Have the trigger answer at its path, in place of one that no rule needs.

    `by_rule`, `by_pack`: the rule that is being installed, or the pack with all of its rules: these
    do not need the trigger that they had. Raises InvalidDocument.
    """
    path = trigger.parameters["path"]
    with transaction.atomic():
        hook = Webhook.objects.select_for_update(of=("self",)).filter(path=path).first()
        if hook is None:
            hook = _made(path, trigger)
        if hook.trigger_id == trigger.pk:
            return
        rules = Rule.objects.filter(trigger=hook.trigger_id, retired_at__isnull=True)
        rules = rules.exclude(ref=by_rule)
        if by_pack is not None:
            rules = rules.exclude(pack=by_pack)
        if (rule := rules.order_by("ref").first()) is not None:
            message = f"the path {path!r} is that of the rule {rule}, with other parameters"
            raise InvalidDocument([Problem(("parameters", "path"), message)])
        hook.trigger = trigger
        hook.save(update_fields=["trigger"])


def close(trigger: Trigger) -> bool:
    """Have nobody answer at the path of a trigger; returns False if nobody does. What was counted
    of its deliveries goes with it, its events stay."""
    removed, _ = Webhook.objects.filter(trigger=trigger).delete()
    return bool(removed)


def _made(path: str, trigger: Trigger) -> Webhook:
    try:
        with transaction.atomic():
            return Webhook.objects.create(path=path, trigger=trigger)
    except IntegrityError:  # another process got there first
        return Webhook.objects.select_for_update(of=("self",)).get(path=path)


def without_path(rules: Sequence[Rule]) -> list[Rule]:
    """Those of these rules whose hook does not answer at its path, as another one does."""
    wanted = [rule for rule in rules if rule.trigger.type.ref == hook_parameters.WEBHOOK]
    hooks = Webhook.objects.filter(trigger__in=[rule.trigger_id for rule in wanted])
    answering = set(hooks.values_list("trigger_id", flat=True))
    return [rule for rule in wanted if rule.trigger_id not in answering]
