"""Sensors, policies and configuration of StackStorm, in the forms of Muster's own files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.automation.st2 import triggers
from orchestrator.automation.st2.report import Item, NotConvertible, mapping

ON_EXCEED = {"delay": "wait", "cancel": "reject"}


# --- sensors -------------------------------------------------------------------------------------


def sensor(item: Item, *, pack: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The file of a sensor: its class as it is, which `muster_client.st2_sensors` calls. Its
    `parameters` are what the class finds in `self.config`. Raises NotConvertible."""
    values = item.source.value
    file, name = str(values.get("entry_point", "")), str(values.get("class_name", ""))
    if not item.has(f"sensors/{file}"):
        raise NotConvertible(f"there is no file sensors/{file}", "entry_point")
    module = file.removesuffix(".py").replace("/", ".")
    made: dict[str, Any] = {
        "name": re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower(),
        "description": " ".join(str(values.get("description") or "").split()),
        "enabled": values.get("enabled") is not False,
        "runtime": "python",
        "entry_point": f"{pack}.sensors.{module}:{name}",
        # a name with a point would be one of another pack
        "trigger_types": [
            f"{pack}.{name}" if "." in name else name
            for name in (triggers.new_type(each)["name"] for each in declared_types(item))
        ],
    }
    interval = {"poll_interval": values["poll_interval"]} if "poll_interval" in values else {}
    if parameters := {**config, **interval}:
        made["parameters"] = parameters
    return made


def declared_types(item: Item) -> list[dict[str, Any]]:
    """The trigger types that a sensor declares, as it does. Raises NotConvertible."""
    declared = item.source.value.get("trigger_types") or []
    if not isinstance(declared, list):
        raise NotConvertible("expected a list", "trigger_types")
    return [each for each in declared if isinstance(each, dict)]


# --- policies ------------------------------------------------------------------------------------


def policy(item: Item, *, own: str) -> dict[str, Any]:
    """The file of a policy. `own`: the new name of the pack. Raises NotConvertible."""
    values = item.source.value
    given = mapping(values.get("parameters"), "parameters")
    pack, _, action = triggers.ref(str(values.get("resource_ref", ""))).partition(".")
    kind = values.get("policy_type")
    if kind == "action.retry":
        why = "Muster retries by action: give it a `retry`, see docs/concepts.md"
        raise NotConvertible(why, "policy_type")
    if kind not in ("action.concurrency", "action.concurrency.attr"):
        raise NotConvertible(f"Muster has no policy {kind!r}", "policy_type")
    if pack != own:
        raise NotConvertible("a pack's policy limits its own actions", "resource_ref")
    made: dict[str, Any] = {
        "name": str(values.get("name", "")).lower().replace(".", "_"),
        "description": " ".join(str(values.get("description") or "").split()),
        "action": action,
        "kind": "concurrency",
        "limit": given.get("threshold"),
        "on_exceed": ON_EXCEED.get(str(given.get("action", "delay")), "wait"),
    }
    if attributes := given.get("attributes"):
        if not isinstance(attributes, list):
            raise NotConvertible("expected a list", "parameters", "attributes")
        made["keyed_by"] = [f"/{name}" for name in attributes]
    if values.get("enabled") is False:
        made["enabled"] = False
    return made


# --- configuration -------------------------------------------------------------------------------


def config(item: Item) -> dict[str, Any]:
    """The configuration that actions find in `self.config`: the defaults of the schema. Secrets,
    and what has no default, are listed."""
    made: dict[str, Any] = {}
    for name, each in item.source.value.items():
        described = each if isinstance(each, dict) else {}
        if described.get("secret"):
            item.left_out("a secret does not belong into a file of the pack: give it to the action "
                          "as a parameter with a key, see docs/keys.md", name)  # fmt: skip
        elif "default" in described:
            made[name] = described["default"]
        else:
            item.changed("it has no default: write its value into config.json", name)
    return made
