"""Functions of packs: load `package.module:function`, and describe what it raises.

Modules are imported once and kept. The parent of the pack's folder is on `sys.path`, last, so that
a pack cannot shadow what is there already.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from typing import Any

from muster_client import calling
from orchestrator.core.errors import MusterError
from workers import hiding
from workers.isolated import results

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 20_000
"""Characters. The end of a traceback is kept, as it names the error."""


class CannotLoad(MusterError):
    """The entry point does not lead to a function: this host lacks the code, or a part of it."""


def load(entry_point: str) -> Callable[..., Any]:
    """Load the function `package.module:function`. Raises CannotLoad, or the errors of the
    import."""
    module_name, _, name = entry_point.partition(":")
    with _forgotten_unless_loaded(module_name):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            # a module that the action's own module fails to import is the action's error
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            raise CannotLoad(
                f"entry point {entry_point}: there is no module {error.name!r}"
            ) from None
        function: Callable[..., Any] | None = getattr(module, name, None)
        if not callable(function):
            raise CannotLoad(f"entry point {entry_point}: {module_name} has no function {name!r}")
    return function


@contextlib.contextmanager
def _forgotten_unless_loaded(module_name: str) -> Iterator[None]:
    """Forget a failed import, as the module may be there the next time."""
    parts = module_name.split(".")
    names = [".".join(parts[:number]) for number in range(1, len(parts) + 1)]
    new = [name for name in names if name not in sys.modules]
    if new:
        importlib.invalidate_caches()
    try:
        yield
    except CannotLoad:
        for name in new:
            sys.modules.pop(name, None)
        raise


@functools.lru_cache
def parent_of(pack_path: str) -> str:
    """The folder in which a pack is found as a package."""
    # not resolved if it is a link: modules are found by the name of the folder
    return os.path.dirname(os.path.abspath(pack_path))


def make_importable(pack_path: str) -> None:
    """Let this process find the modules of a pack. Those that it has of another folder of the same
    name, such as of another release, are forgotten: what it runs is never made up of both."""
    parent, name = parent_of(pack_path), os.path.basename(os.path.abspath(pack_path))
    before = _parents.get(name)
    if before == parent:
        return
    if before is not None:
        for module in [each for each in sys.modules if f"{each}.".startswith(f"{name}.")]:
            del sys.modules[module]
        if before in added and list(_parents.values()).count(before) == 1:
            added.discard(before)
            sys.path.remove(before)
    if parent not in sys.path:
        sys.path.append(parent)
        added.add(parent)
    _parents[name] = parent
    importlib.invalidate_caches()


_parents: dict[str, str] = {}
"""The parent folders in which this process finds packs, by the names of the packs' folders."""

added: set[str] = set()
"""The entries of `sys.path` that are there for packs alone. Processes of other releases must not
look there."""


def described(error: BaseException, *, callers: Collection[str]) -> dict[str, Any]:
    """Describe an exception: type, message and traceback, without the frames of its callers' files
    above the action's own. One that asks for something adds the key that says so."""
    asked = calling.asked(error)
    error = calling.cause(error)
    callers = (*callers, *calling.OWN_FILES)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in callers:
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    message = calling.message(error)
    return {
        "exception": results.text(type(error).__qualname__),
        "message": results.text(hiding.hidden(message)[:MESSAGE_LIMIT]),
        "traceback": results.text(hiding.hidden("".join(lines))[-TRACEBACK_LIMIT:]),
        **asked,
    }
