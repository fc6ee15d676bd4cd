"""Parameters of StackStorm's actions, as a JSON Schema and what it cannot say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.automation.st2.report import Item, mapping

KEPT = (
    "type", "description", "default", "secret", "enum", "items", "properties", "pattern", "format",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "anyOf", "oneOf",
)  # fmt: skip

_OF_ALL = {"timeout", "log_level", "content_version", "env"}
_OF_COMMANDS = _OF_ALL | {"cwd", "kwarg_op", "sudo", "sudo_password", "stream_output"}
OF_RUNNERS: Mapping[str, frozenset[str]] = {
    "python-script": frozenset(_OF_ALL),
    "local-shell-cmd": frozenset(_OF_COMMANDS),
    "local-shell-script": frozenset(_OF_COMMANDS),
    "http-request": frozenset(
        {"timeout", "headers", "cookies", "proxies", "http_proxy", "https_proxy",
         "allow_redirects", "verify_ssl_cert", "url_hosts_blacklist", "url_hosts_whitelist"}
    ),
}  # fmt: skip
"""Parameters of runners, which actions may set: they are no parameters of the action here."""


@dataclass
class Parameters:
    """The parameters of one action."""

    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The parameters that callers give, by name, as StackStorm has them."""
    constants: dict[str, Any] = field(default_factory=dict)
    """Immutable ones, and those of the runner, with their values."""
    positions: dict[str, int] = field(default_factory=dict)
    """Of those that have one."""
    used: set[str] = field(default_factory=set)
    """Constants that are in what is made."""

    def schema(self, *, needed: Collection[str] = ()) -> dict[str, Any]:
        """The JSON Schema. `needed`: those that an entry point names, which callers must give."""
        properties = {name: schema_of(each) for name, each in self.given.items()}
        required = [
            name
            for name, each in self.given.items()
            if name in needed or (each.get("required") is True and "default" not in each)
        ]
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": required} if required else {})

    @property
    def defaults(self) -> dict[str, Any]:
        """The values that StackStorm gives where its caller gives none."""
        return {name: each.get("default") for name, each in self.given.items()} | self.constants

    def in_order(self) -> list[str]:
        """Names of those with a position, constants too."""
        return sorted(self.positions, key=lambda name: self.positions[name])

    def use(self, name: str) -> Any:
        """The value of a constant, which is in what is made; None if there is none."""
        self.used.add(name)
        return self.constants.get(name)

    def note_unused(self, item: Item) -> None:
        """List the constants that nothing of what is made has."""
        for name, value in self.constants.items():
            if name not in self.used and value not in (None, "", [], {}):
                why = f"Muster's action has no place for it, and it is {value!r:.60}"
                item.left_out(why, *_at(name))


def read(item: Item, *, runner: str) -> Parameters:
    """Read the parameters of an action. Raises NotConvertible."""
    found = Parameters()
    of_runner = OF_RUNNERS.get(runner, frozenset())
    declared = mapping(item.source.value.get("parameters"), "parameters")
    for name, each in declared.items():
        description = each if isinstance(each, dict) else {}
        if description.get("immutable") is True or name in of_runner:
            if "default" in description:
                found.constants[name] = description["default"]
            elif description.get("immutable") is not True:
                item.left_out("a parameter of the runner, which no caller can give", *_at(name))
        else:
            found.given[name] = description
        is_own = name in found.given or (name in found.constants and name not in of_runner)
        if is_own and isinstance(position := description.get("position"), int):
            found.positions[name] = position
    return found


def schema_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one parameter. A `required` in it is of an older draft."""
    kept = {name: _plain(description[name]) for name in KEPT if name in description}
    if "default" in kept and kept["default"] is None:
        del kept["default"]
    return kept


def plain_schema(schema: Any) -> dict[str, Any]:
    """A schema of StackStorm as one of today: `required: true` at a property becomes a name in the
    object's list."""
    plain = _plain(schema)
    return plain if isinstance(plain, dict) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    plain = {name: _plain(each) for name, each in value.items()}
    plain = {name: each for name, each in plain.items() if not _is_old(name, each)}
    properties = value.get("properties")
    if isinstance(properties, Mapping):
        needed = [
            name
            for name, each in properties.items()
            if isinstance(each, Mapping) and each.get("required") is True
        ]
        if needed:
            plain["required"] = needed
    return plain


def _is_old(name: str, value: Any) -> bool:
    return name in ("required", "immutable", "position") and isinstance(value, bool | int)


def _at(name: str) -> tuple[str, str]:
    return "parameters", name
