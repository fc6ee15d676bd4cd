"""Actions of StackStorm, runner by runner."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.automation.st2 import parameters as st2_parameters
from orchestrator.automation.st2 import texts
from orchestrator.automation.st2.parameters import Parameters
from orchestrator.automation.st2.report import Item, NotConvertible, mapping
from orchestrator.core import placeholders
from orchestrator.core.packs.runtimes import METHODS, VARIABLE

MODULE = "st2_actions"
"""The module of the new pack with a function for each Python action."""

NAME = re.compile(r"[a-z0-9_.-]{1,60}")

WORKFLOWS = {
    "orquesta": "a workflow",
    "mistral-v2": "a workflow",
    "action-chain": "a chain of actions",
}
WHY_NOT = {
    "inquirer": "it asks people: use an inquiry of Muster in the workflow or rule that calls it",
    "announcement": "Muster has no chat: call the chat's own API with an action",
    "remote-shell-cmd": "it runs by SSH; in Muster a worker on that host runs it: make it a "
    "local-shell-cmd, and give it a `worker_selector`",
    "remote-shell-script": "it runs by SSH; in Muster a worker on that host runs it: make it a "
    "local-shell-script, and give it a `worker_selector`",
}

OLD_NAMES = {
    "run-python": "python-script",
    "run-local": "local-shell-cmd",
    "run-local-script": "local-shell-script",
}
"""Of runners, in older versions."""

NO_SUDO = "it runs by sudo; in Muster the worker decides which user actions have"
DANGEROUS = (
    "it runs any command, so it is `dangerous`: its callers need the permission "
    "actions.run_any_command"
)


@dataclass(frozen=True)
class Function:
    """A function to be written for a Python action."""

    name: str
    entry_point: str
    defaults: dict[str, Any]
    description: str


@dataclass(frozen=True)
class Converted:
    """An action of Muster: what its file says, and the function that it needs."""

    values: dict[str, Any]
    function: Function | None = None


def convert(item: Item, *, pack: str, taken: Collection[str] = ()) -> Converted:
    """Convert an action. `taken`: names of functions that there are. Raises NotConvertible."""
    values = item.source.value
    name = str(values.get("name", "")).lower()
    if not NAME.fullmatch(name):
        raise NotConvertible(f"expected a name of a-z, 0-9, _, . and -, found {name!r}", "name")
    runner = str(values.get("runner_type", ""))
    runner = OLD_NAMES.get(runner, runner)
    found = st2_parameters.read(item, runner=runner)
    base: dict[str, Any] = {"name": name, "description": _line(values.get("description"))}
    if values.get("enabled") is False:
        base["enabled"] = False
    if isinstance(seconds := found.constants.get("timeout"), int | float) and seconds > 0:
        base["timeout_seconds"] = found.use("timeout")
    _note_rest(item)
    converted = _runner(runner)(item, base, found, pack)
    found.note_unused(item)
    return _with_own_name(converted, taken)


def _with_own_name(converted: Converted, taken: Collection[str]) -> Converted:
    """Give its function a name that no other has: `get-user` and `get_user` are two actions."""
    function = converted.function
    if function is None or function.name not in taken:
        return converted
    number = 2
    while f"{function.name}_{number}" in taken:
        number += 1
    name = f"{function.name}_{number}"
    module = converted.values["entry_point"].partition(":")[0]
    values = converted.values | {"entry_point": f"{module}:{name}"}
    return Converted(values, replace(function, name=name))


def _runner(name: str) -> Callable[[Item, dict[str, Any], Parameters, str], Converted]:
    known: Mapping[str, Callable[..., Converted]] = {
        "python-script": _python,
        "local-shell-cmd": _shell_command,
        "local-shell-script": _shell_script,
        "http-request": _http,
        "noop": _noop,
    }
    if name in known:
        return known[name]
    if kind := WORKFLOWS.get(name):
        why = f"{kind} of {name}: write a task template, see docs/workflows.md"
        raise NotConvertible(why, "runner_type")
    raise NotConvertible(WHY_NOT.get(name, f"Muster has no runner {name!r}"), "runner_type")


def _note_rest(item: Item) -> None:
    if item.source.value.get("notify"):
        item.left_out("Muster's rules answer `core.execution`: write one that notifies", "notify")


# --- runners -------------------------------------------------------------------------------------


def _python(item: Item, base: dict[str, Any], found: Parameters, pack: str) -> Converted:
    """A function that calls the class in the action's file, with the pack's own interpreter."""
    entry_point = str(item.source.value.get("entry_point", ""))
    if not item.has(f"actions/{entry_point}"):
        raise NotConvertible(f"there is no file actions/{entry_point}", "entry_point")
    # so that no action is a word of Python, or a name that the module has
    name = "action_" + re.sub(r"\W", "_", base["name"])
    function = Function(name, entry_point, _of_python(found), base["description"])
    values = {
        **base,
        "runtime": "python",
        "entry_point": f"{pack}.{MODULE}:{name}",
        "options": {"process": True, **_environment(found)},
        "parameters": found.schema(),
    }
    return Converted(values, function)


def _of_python(found: Parameters) -> dict[str, Any]:
    """The values that the action gets where its caller gives none: none of the runner's."""
    of_runner = st2_parameters.OF_RUNNERS["python-script"]
    found.used |= found.constants.keys() - of_runner
    return {name: value for name, value in found.defaults.items() if name not in of_runner}


def _environment(found: Parameters) -> dict[str, Any]:
    """The option `env`, if it has one. Raises NotConvertible for values that callers give."""
    given = mapping(found.use("env"), "parameters", "env")
    if not given:
        return {}
    needed: set[str] = set()
    environment = {}
    for name, value in given.items():
        if VARIABLE.fullmatch(str(name)) is None:
            raise NotConvertible(f"{name!r} is no name of a variable", "parameters", "env")
        text = str(value)
        if texts.EXPRESSION.search(text) or texts.STATEMENT.search(text):
            filled = _filled(text, found, needed)
            text = filled if needed else placeholders.fill(filled, {})
        environment[str(name)] = text
    if needed:
        why = f"its environment has the value of a parameter ({', '.join(sorted(needed))})"
        raise NotConvertible(why, "parameters", "env")
    return {"env": environment}


def _filled(text: str, found: Parameters, needed: set[str]) -> str:
    """A text with placeholders for its expressions. Raises NotConvertible."""
    return texts.filled(text, lambda expression: _argument(expression, found, needed))


def _shell_command(item: Item, base: dict[str, Any], found: Parameters, pack: str) -> Converted:
    if found.use("sudo"):
        raise NotConvertible(NO_SUDO)
    if "default" in found.given.get("cmd", {}):
        item.changed("its callers cannot change the command", "parameters", "cmd")
        found.constants["cmd"] = found.given.pop("cmd")["default"]
    if "cmd" in found.given:
        return Converted(_any_command(item, base, found))
    text = found.use("cmd")
    if not isinstance(text, str):
        raise NotConvertible("it has no command: a parameter `cmd` says what to run", "parameters")
    needed: set[str] = set()
    sh, option, script, *arguments = texts.command(text, lambda e: _argument(e, found, needed))
    if needed:
        why = "the values of its parameters are arguments: no shell reads them, each is one word"
        item.changed(why, "parameters", "cmd")
    entry_point = [sh, option, texts.escaped(script), *arguments]
    return Converted(_of_shell(item, base, found, entry_point, needed))


def _any_command(item: Item, base: dict[str, Any], found: Parameters) -> dict[str, Any]:
    """An action whose caller says what to run."""
    item.changed(DANGEROUS, "parameters", "cmd")
    for name in [name for name in found.given if name != "cmd"]:
        del found.given[name]
        item.left_out("the command of the caller cannot name it", "parameters", name)
    base = base | {"dangerous": True}
    return _of_shell(item, base, found, ["sh", "-c", "{cmd}"], {"cmd"})


def _argument(expression: str, found: Parameters, needed: set[str]) -> str:
    name = texts.parameter_name(expression)
    if name in found.constants:
        constant = str(found.use(name))
        if texts.EXPRESSION.search(constant) or texts.STATEMENT.search(constant):
            raise NotConvertible("its value is a template itself", "parameters", name)
        return texts.escaped(constant)
    if name not in found.given:
        raise NotConvertible(f"{{{{{expression}}}}} is none of its parameters", "parameters")
    needed.add(name)
    return f"{{{name}}}"


def _shell_script(item: Item, base: dict[str, Any], found: Parameters, pack: str) -> Converted:
    entry_point = str(item.source.value.get("entry_point", ""))
    if not item.has(f"actions/{entry_point}"):
        raise NotConvertible(f"there is no file actions/{entry_point}", "entry_point")
    if found.use("sudo"):
        raise NotConvertible(NO_SUDO)
    operator = str(found.use("kwarg_op") or "--")
    needed: set[str] = set()
    placed = found.in_order()
    arguments = [f"./actions/{entry_point}"]
    of_runner = st2_parameters.OF_RUNNERS["local-shell-script"]
    for name in found.constants:
        if name not in of_runner and name not in placed:
            arguments += _constant_option(f"{operator}{name}", found.use(name), found, needed)
    for name in [name for name in found.given if name not in placed]:
        each = found.given[name]
        if each.get("type") == "boolean" or not ("default" in each or each.get("required") is True):
            del found.given[name]
            why = "an argument that may be left out"
            item.left_out(f"{why}: Muster's commands have all of theirs", "parameters", name)
        else:
            arguments.append(f"{operator}{name}={{{name}}}")
    for name in placed:
        if name in found.constants:
            arguments.append(_constant(found.use(name), found, needed))
            continue
        if "default" not in found.given[name] and found.given[name].get("required") is not True:
            item.changed("callers must give it: it is an argument", "parameters", name)
        arguments.append(f"{{{name}}}")
    return Converted(_of_shell(item, base, found, arguments, needed | set(found.given)))


def _constant_option(option: str, value: Any, found: Parameters, needed: set[str]) -> list[str]:
    """The argument of a script for a constant: one that is true is its name alone."""
    if value is True:
        return [option]
    if value is None or value is False:
        return []
    return [f"{option}={_constant(value, found, needed)}"]


def _constant(value: Any, found: Parameters, needed: set[str]) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list):
        return _filled(",".join(map(str, value)), found, needed)
    if isinstance(value, dict):
        return texts.escaped(json.dumps(value))
    return _filled("" if value is None else str(value), found, needed)


def _of_shell(
    item: Item, base: dict[str, Any], found: Parameters, entry_point: list[str], needed: set[str]
) -> dict[str, Any]:
    """The values of an action that runs a command."""
    options = _environment(found)
    if folder := found.use("cwd"):
        needed_here: set[str] = set()
        entry_point = _in_folder(_filled(str(folder), found, needed_here), entry_point)
        needed = needed | needed_here
    for name in sorted(needed):
        if "default" in found.given[name]:
            value = found.given[name]["default"]
            item.changed(f"callers must give it: Muster fills in no default ({value!r:.60}); rules "
                         "that were imported with it do", "parameters", name)  # fmt: skip
    values = base | {
        "runtime": "shell",
        "entry_point": entry_point,
        "parameters": found.schema(needed=needed),
    }
    return values | ({"options": options} if options else {})


def _in_folder(folder: str, argv: list[str]) -> list[str]:
    """The command line, run in a folder. A script of the pack is found from there, too."""
    if argv[0].startswith("./"):
        script = 'cd -- "$0" && file=$1 && shift && exec "$MSTR_PACK_PATH/$file" "$@"'
    else:
        script = 'cd -- "$0" && exec "$@"'
    return ["sh", "-c", script, folder, *argv]


def _http(item: Item, base: dict[str, Any], found: Parameters, pack: str) -> Converted:
    url, needed = "{url}", set[str]()
    if "url" in found.given:
        needed.add("url")
    elif "url" not in found.constants:
        found.given["url"] = {"type": "string", "pattern": "^https?://", "required": True}
        needed.add("url")
    else:
        url = _filled(str(found.use("url")), found, needed)
    options: dict[str, Any] = {"method": _method(item, found)}
    if headers := mapping(found.use("headers"), "parameters", "headers"):
        options["headers"] = _all_filled(
            {name: str(value) for name, value in headers.items()}, found, needed
        )
    if query := mapping(found.use("params"), "parameters", "params"):
        options["query"] = _all_filled(query, found, needed)
    if "body" in found.given:
        options["body"] = "{body}"
    elif (body := found.use("body")) is not None:
        options["body"] = _all_filled(body, found, needed)
    if found.constants.get("verify_ssl_cert") is True:
        found.use("verify_ssl_cert")  # as Muster does
    used = {"url", "body", *needed}
    for name in [name for name in found.given if name not in used]:
        del found.given[name]
        item.left_out("an HTTP action has no place for it: write it into `options`, see "
                      "docs/runtimes.md", "parameters", name)  # fmt: skip
    values = base | {
        "runtime": "http",
        "entry_point": url,
        "options": options,
        "parameters": found.schema(needed=needed),
    }
    return Converted(values)


def _all_filled(value: Any, found: Parameters, needed: set[str]) -> Any:
    """The same, with placeholders in all of its texts. Raises NotConvertible."""
    if isinstance(value, str):
        return _filled(value, found, needed)
    if isinstance(value, dict):
        return {name: _all_filled(each, found, needed) for name, each in value.items()}
    if isinstance(value, list):
        return [_all_filled(each, found, needed) for each in value]
    return value


def _method(item: Item, found: Parameters) -> str:
    """The method, which is the same for all calls."""
    given = found.given.pop("method", None)
    method = str((given or {}).get("default") or found.use("method") or "GET").upper()
    if given is not None:
        item.changed(f"its callers cannot choose the method: it is {method}", "parameters",
                     "method")  # fmt: skip
    if method not in METHODS:
        raise NotConvertible(f"Muster's HTTP actions have no method {method}", "parameters")
    return method


def _noop(item: Item, base: dict[str, Any], found: Parameters, pack: str) -> Converted:
    return Converted(base | {"runtime": "shell", "entry_point": ["true"],
                             "parameters": found.schema()})  # fmt: skip


def _line(text: Any) -> str:
    return " ".join(str(text or "").split())
