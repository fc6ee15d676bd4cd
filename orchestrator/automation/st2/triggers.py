"""Triggers of StackStorm: those that it brings, and trigger types of packs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.automation.hooks.parameters import HEADER, NEVER_KEPT, WEBHOOK
from orchestrator.automation.hooks.profiles import ALWAYS_KEPT, TOKEN
from orchestrator.automation.st2 import parameters, texts
from orchestrator.automation.st2.report import NotConvertible, mapping
from orchestrator.automation.trigger_types import EXECUTION

TIMES = {"executed_at": "fired_at", "schedule": ""}
"""Names in the payload of timers, and what they are here; nothing for what events lack."""

OF_EXECUTIONS = {
    "action_name": "action_ref", "action_ref": "action_ref", "status": "status",
    "execution_id": "execution_id", "start_timestamp": "at", "runner_ref": "", "result": "",
    "parameters": "",
}  # fmt: skip

STATUSES = {
    "succeeded": "completed", "failed": "failed", "timeout": "timeout", "canceled": "cancelled",
    "abandoned": "abandoned", "error": "failed", "running": "running",
    "requested": "requested", "scheduled": "scheduled", "canceling": "canceling",
}  # fmt: skip

NO_TYPE = {
    "core.st2.generic.notifytrigger": "Muster has no notifications of actions: a rule on "
    "`core.execution` answers the end of an execution",
    "core.st2.generic.inquiry": "Muster's inquiries are no trigger: who waits for one is told by "
    "the notifier",
    "core.st2.action.file_written": "Muster has no trigger for that",
}


_HEADER = re.compile(r"""\btrigger\.headers(?:\.([\w-]+)|\[\s*(['"])([^'"]+)\2\s*\])""")
_ALL_HEADERS = re.compile(r"\btrigger\.headers\b(?!\[')")


@dataclass(frozen=True)
class Trigger:
    """A trigger of a rule in Muster."""

    type: str
    parameters: dict[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names in the payload, where they differ."""

    def here(self, expression: str) -> str:
        """An expression or a path over our payload. Raises NotConvertible."""
        if self.type == WEBHOOK:
            expression = _HEADER.sub(self._header, expression)
            if _ALL_HEADERS.search(expression):
                raise NotConvertible("events have only the headers that their trigger names")
        return texts.with_names(expression, self.renamed)

    def _header(self, match: re.Match[str]) -> str:
        """A header by its name here. The trigger has to name it, else its events lack it."""
        name = match[1] or match[3]
        if HEADER.fullmatch(name) is None or NEVER_KEPT.search(name.lower()):
            raise NotConvertible(f"events have no header {name!r}, as it may be a secret")
        if name.lower() not in ALWAYS_KEPT:
            named = self.parameters.setdefault("headers", [])
            named += [name.lower()] if name.lower() not in named else []
        return f"trigger.headers['{name.lower()}']"


def of_rule(trigger: Any, *, hooks: dict[str, dict[str, Any]]) -> Trigger:
    """The trigger of a rule. `hooks`: the parameters of the pack's webhooks by their path, as all
    rules of one have the same trigger. Raises NotConvertible."""
    if not isinstance(trigger, dict) or not isinstance(kind := trigger.get("type"), str):
        raise NotConvertible("expected a mapping with a `type`", "trigger")
    given = mapping(trigger.get("parameters"), "trigger", "parameters")
    match kind:
        case "core.st2.IntervalTimer":
            return Trigger("core.interval", _timer(given), TIMES)
        case "core.st2.CronTimer":
            return Trigger("core.cron", _timer(given), TIMES)
        case "core.st2.DateTimer":
            return Trigger("core.date", _timer(given), TIMES)
        case "core.st2.webhook":
            return _webhook(given, hooks)
        case "core.st2.generic.actiontrigger":
            return Trigger(EXECUTION, {}, OF_EXECUTIONS)
    if kind.startswith("core."):
        why = NO_TYPE.get(kind, "Muster has no trigger type of this name")
        raise NotConvertible(why, "trigger", "type")
    return Trigger(ref(kind), dict(given))


def pack_name(theirs: str) -> str:
    """The name of an imported pack: Python imports it."""
    return re.sub(r"\W", "_", theirs.lower())


def ref(name: str) -> str:
    """A ref `pack.name`, as it is once its pack is imported."""
    pack, _, rest = name.partition(".")
    return f"{pack_name(pack)}.{type_name(rest)}"


def type_name(theirs: str) -> str:
    return theirs.lower().replace(" ", "_")


def _timer(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of timers have the same names; without a value they are left out."""
    return {name: value for name, value in given.items() if value is not None}


def _webhook(given: Mapping[str, Any], hooks: dict[str, dict[str, Any]]) -> Trigger:
    path = str(given.get("url") or "").strip("/").lower()
    if not path:
        raise NotConvertible("expected a `url`", "trigger", "parameters")
    return Trigger(WEBHOOK, hooks.setdefault(path, {"path": path, "profile": TOKEN}))


def new_type(values: Mapping[str, Any]) -> dict[str, Any]:
    """The file of a trigger type, as of `triggers/` or of a sensor. Raises NotConvertible."""
    name = values.get("name")
    if not isinstance(name, str) or not name:
        raise NotConvertible("expected a name", "name")
    made: dict[str, Any] = {"name": type_name(name)}
    made["description"] = " ".join(str(values.get("description") or "").split())
    for schema in ("parameters_schema", "payload_schema"):
        if isinstance(values.get(schema), dict) and values[schema]:
            made[schema] = parameters.plain_schema(values[schema])
    return made
