"""Rules of StackStorm: criteria are the same, triggers and actions of its core have other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.automation import criteria
from orchestrator.automation.hook_paths import ADDRESS
from orchestrator.automation.hooks.parameters import WEBHOOK
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.st2 import texts, triggers
from orchestrator.automation.st2.report import Item, NotConvertible, mapping
from orchestrator.automation.st2.triggers import Trigger
from orchestrator.automation.trigger_types import EXECUTION
from orchestrator.core.states import TERMINAL

ACTION_NAMES = ("trigger.action_name", "trigger.action_ref")
STATUS = "trigger.status"

EQUAL = ("equals", "eq", "iequals", "ieq")
UNEQUAL = ("nequals", "neq")
ONE_OF, NONE_OF = ("inside", "in"), ("ninside", "nin")
THERE = ("exists", "nexists")

Given = Mapping[str, Any]


def convert(
    item: Item,
    *,
    pack: str,
    defaults: Mapping[str, Mapping[str, Any]],
    hooks: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """The file of a rule, whose trigger may get more headers by the pack's other rules. `pack`: its
    new name. `defaults`: of the parameters of its actions that need all of them, by ref. `hooks`:
    as of `triggers.of_rule`. Raises NotConvertible."""
    values = item.source.value
    trigger = triggers.of_rule(values.get("trigger"), hooks=hooks)
    rule: dict[str, Any] = {
        "name": str(values.get("name", "")).lower(),
        "description": " ".join(str(values.get("description") or "").split()),
        "enabled": values.get("enabled") is True,  # which is their default, too
        "trigger": {"type": trigger.type, "parameters": trigger.parameters},
    }
    if found := _criteria(mapping(values.get("criteria"), "criteria"), trigger):
        rule["criteria"] = found
    rule["action"] = _action(item, values.get("action"), trigger, pack, defaults)
    kind = values.get("type")
    if (kind.get("ref") if isinstance(kind, dict) else kind) == "backstop":
        rule["type"] = "backstop"
    if not trigger.parameters:
        del rule["trigger"]["parameters"]
    _note_trigger(item, trigger, pack)
    return rule


def _note_trigger(item: Item, trigger: Trigger, pack: str) -> None:
    if trigger.type == WEBHOOK:
        address = f"{ADDRESS}{trigger.parameters['path']}"
        item.changed(f"its address is {address}, and who calls it needs a token", "trigger")
    elif trigger.type.partition(".")[0] not in (pack, "core"):
        item.changed(f"the pack of {trigger.type} has to be imported too", "trigger", "type")


# --- criteria ------------------------------------------------------------------------------------


def _criteria(given: Given, trigger: Trigger) -> dict[str, Any]:
    """The same criteria, over our payload. Raises NotConvertible."""
    found = {_path(path, trigger): _leaf(path, leaf, trigger) for path, leaf in given.items()}
    if len(found) < len(given):
        raise NotConvertible("two of its paths are the same here", "criteria")
    try:
        criteria.compile_criteria(found)
    except InvalidDocument as invalid:
        reasons = "; ".join(map(str, invalid.problems))
        raise NotConvertible(reasons, "criteria") from None
    return found


def _path(path: str, trigger: Trigger) -> str:
    bare, mark, comment = str(path).partition("#")
    try:
        return f"{trigger.here(bare)}{mark}{comment}"
    except NotConvertible as why:
        raise NotConvertible(why.reason, "criteria", path) from None


def _leaf(path: str, leaf: Any, trigger: Trigger) -> Any:
    """A comparison. Statuses of executions have other names, and so may the packs of actions."""
    if not isinstance(leaf, dict):
        return leaf
    found = dict(leaf)
    try:
        if isinstance(pattern := leaf.get("pattern"), str):
            found["pattern"] = texts.rule_text(pattern, trigger.here)
        name = str(path).partition("#")[0].strip()
        if trigger.type == EXECUTION and name in (STATUS, *ACTION_NAMES):
            if leaf.get("type") not in THERE:
                translate = _status if name == STATUS else _action_ref
                found["pattern"] = _translated(leaf, translate)
            if name == STATUS:
                _wait_for(found, trigger)
    except NotConvertible as why:
        raise NotConvertible(why.reason, "criteria", path) from None
    return found


def _translated(leaf: Given, translate: Callable[[Any], str]) -> Any:
    """The pattern with our words. Raises NotConvertible for what compares parts of them."""
    kind, pattern = leaf.get("type"), leaf.get("pattern")
    if kind in (*EQUAL, *UNEQUAL):
        return translate(pattern)
    if kind in (*ONE_OF, *NONE_OF) and isinstance(pattern, list):
        return [translate(each) for each in pattern]
    raise NotConvertible(f"{kind!r} compares words of StackStorm, and Muster has others")


def _status(theirs: Any) -> str:
    if not isinstance(theirs, str) or theirs.lower() not in triggers.STATUSES:
        raise NotConvertible(f"Muster has no status {theirs!r:.60}")
    return triggers.STATUSES[theirs.lower()]


def _action_ref(theirs: Any) -> str:
    pack, dot, _ = theirs.partition(".") if isinstance(theirs, str) else ("", "", "")
    if not dot:
        why = "both names of an action are its ref in StackStorm, so this never equals one"
        raise NotConvertible(f"expected a ref `pack.name`, found {theirs!r:.60}: {why}")
    if pack == "core":
        raise NotConvertible(f"no execution in Muster is one of {theirs}")
    return triggers.ref(theirs)


def _wait_for(leaf: Given, trigger: Trigger) -> None:
    """Have the trigger fire for the statuses that a rule names; else it fires for ends alone."""
    pattern = leaf.get("pattern")
    if leaf.get("type") not in (*EQUAL, *ONE_OF):
        return
    wanted = {*(pattern if isinstance(pattern, list) else [pattern])}
    if not wanted <= set(TERMINAL):
        known = trigger.parameters.get("statuses", [])
        trigger.parameters["statuses"] = sorted(wanted | {*known})


# --- the action ----------------------------------------------------------------------------------


def _action(
    item: Item,
    action: Any,
    trigger: Trigger,
    pack: str,
    defaults: Mapping[str, Given],
) -> dict[str, Any]:
    if not isinstance(action, dict) or not isinstance(theirs := action.get("ref"), str):
        raise NotConvertible("expected a mapping with a `ref`", "action")
    given = mapping(action.get("parameters"), "action", "parameters")
    if theirs.startswith("core."):
        convert = OF_CORE.get(theirs)
        if convert is None:
            raise NotConvertible(f"Muster has no action {theirs!r}", "action", "ref")
        return convert(item, given, trigger)
    ref = triggers.ref(theirs)
    if ref.partition(".")[0] != pack:
        item.changed(f"the pack of {ref} has to be imported too", "action", "ref")
    filled = {**defaults.get(ref, {}), **given}
    return _called(ref, {name: _value(each, trigger, name) for name, each in filled.items()})


def _called(ref: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"ref": ref, "parameters": parameters} if parameters else {"ref": ref}


def _value(value: Any, trigger: Trigger, name: str) -> Any:
    try:
        return texts.rule_value(value, trigger.here)
    except NotConvertible as why:
        raise NotConvertible(why.reason, "action", "parameters", name) from None


def _local(item: Item, given: Given, trigger: Trigger) -> dict[str, Any]:
    """`core.local` as `core.shell`: what the event says becomes arguments, not commands."""
    at = ("action", "parameters", "cmd")
    if not isinstance(text := given.get("cmd"), str):
        raise NotConvertible("expected a command", *at)
    for name in given.keys() - {"cmd"}:
        item.left_out("core.shell has only the command", "action", "parameters", name)

    def argument(expression: str) -> str:
        return texts.rule_text(f"{{{{ ({expression.strip()}) | string }}}}", trigger.here)

    try:
        argv = texts.command(text, argument)
    except NotConvertible as why:
        raise NotConvertible(why.reason, *at) from None
    item.changed("core.local is core.shell, which is `dangerous`: the owner of the rule needs the "
                 "permission actions.run_any_command", "action", "ref")  # fmt: skip
    if len(argv) > len(("sh", "-c", text)):
        item.changed("what the event says becomes arguments: no shell reads it", *at)
    return _called("core.shell", {"argv": argv})


def _echo(item: Item, given: Given, trigger: Trigger) -> dict[str, Any]:
    return _called("core.echo", {"message": _value(given.get("message", ""), trigger, "message")})


def _noop(item: Item, given: Given, trigger: Trigger) -> dict[str, Any]:
    return _called("core.noop", {})


def _http(item: Item, given: Given, trigger: Trigger) -> dict[str, Any]:
    """`core.http`, if all it does is a GET of an address."""
    method = str(given.get("method", "GET")).upper()
    if method != "GET" or given.keys() - {"method", "url"}:
        why = "Muster's core.http_get only fetches an address: write an action of the runtime http"
        raise NotConvertible(why, "action", "parameters")
    return _called("core.http_get", {"url": _value(given.get("url"), trigger, "url")})


OF_CORE: Mapping[str, Callable[[Item, Given, Trigger], dict[str, Any]]] = {
    "core.local": _local,
    "core.echo": _echo,
    "core.noop": _noop,
    "core.http": _http,
}
