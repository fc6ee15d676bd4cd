"""Python actions of StackStorm, run as functions: what `manage.py import-st2` writes calls `run`.

An action's file is loaded as it is. What it imports of StackStorm is here: the base class `Action`
with `config`, `logger` and `action_service`. Muster has no datastore of values, so the service
refuses, with a text that says what to do instead.

For any Python since 3.8, with its standard library only: the pack's interpreter runs it.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
import types
from typing import Any, Dict, Mapping

CONFIG = "config.json"
"""In the pack's folder: what the actions find in `self.config`."""

BASES = ("st2common.runners.base_action", "st2actions.runners.pythonrunner")
"""The modules from which actions import their base class."""


class NotInMuster(Exception):
    """The action uses something of StackStorm that Muster does not have."""


class ActionFailed(Exception):
    """The action said that it failed: it returned (False, result)."""


class ActionService:
    """Stands for StackStorm's datastore, and refuses."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: Any, **__: Any) -> Any:
            message = (
                f"action_service.{name}: Muster has no datastore. Give the action a secret as a "
                "parameter with a key, and keep state where the action's own service has it."
            )
            raise NotInMuster(message)

        return refuse


class Action:
    """The base class of actions."""

    description = None

    def __init__(self, config: Any = None, action_service: Any = None) -> None:
        self.config = config or {}
        self.action_service = action_service or ActionService()
        self.logger = logging.getLogger(type(self).__name__)

    def run(self, **parameters: Any) -> Any:
        raise NotImplementedError


def run(
    pack_path: str, entry_point: str, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Any:
    """Call the action in a file: `given` over `defaults`, as StackStorm does. Returns its result;
    raises ActionFailed if it says that it failed."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    for name in BASES:
        provide(name, Action=Action)
    file = os.path.join(pack_path, "actions", entry_point)
    found = action_class(load(file, pack_path))
    result = made(found, config_of(pack_path)).run(**{**defaults, **given})
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], bool):
        succeeded, result = result
        if not succeeded:
            raise ActionFailed(json.dumps(result, default=str))
    return result


def provide(name: str, **classes: type) -> None:
    """Let `from NAME import CLASS` work, although nothing of StackStorm is installed."""
    parts = name.split(".")
    for size in range(1, len(parts) + 1):
        path = ".".join(parts[:size])
        if path not in sys.modules:
            module = types.ModuleType(path)
            module.__path__ = []
            sys.modules[path] = module
    vars(sys.modules[name]).update(classes)


def load(file: str, pack_path: str) -> types.ModuleType:
    """Import the file, which finds its neighbours and the pack's `lib` as in StackStorm."""
    folders = (os.path.dirname(file), os.path.join(pack_path, "actions"), pack_path)
    libraries = (os.path.join(pack_path, "actions", "lib"), os.path.join(pack_path, "lib"))
    for folder in (*folders, *libraries):
        if folder not in sys.path:
            sys.path.append(folder)
    name = "st2_action_" + os.path.splitext(os.path.basename(file))[0].replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def action_class(module: types.ModuleType) -> Any:
    """The action that the file defines."""
    for value in vars(module).values():
        is_action = isinstance(value, type) and issubclass(value, Action)
        if is_action and value.__module__ == module.__name__:
            return value
    raise NotInMuster(f"{module.__file__} defines no class that derives from Action")


def made(found: Any, config: Dict[str, Any]) -> Any:
    """Make the action. Older ones take only a config."""
    try:
        action = found(config=config, action_service=ActionService())
    except TypeError:
        action = found(config=config)
    if getattr(action, "action_service", None) is None:
        action.action_service = ActionService()
    return action


def config_of(pack_path: str) -> Dict[str, Any]:
    """The pack's configuration; empty if it has none."""
    try:
        with open(os.path.join(pack_path, CONFIG)) as file:
            config: Dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return {}
    return config
