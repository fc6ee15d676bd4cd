"""Which runtimes there are, and which of them this worker offers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any, cast

import structlog

from orchestrator.core import packs
from workers.runtimes import results
from workers.runtimes.protocol import Call, Outcome, Runtime, failed, unavailable

log = structlog.get_logger(__name__)

BUILT_IN = {
    "python": "workers.runtimes.python",
    "shell": "workers.runtimes.shell",
    "node": "workers.runtimes.node",
    "http": "workers.runtimes.http",
    "container": "workers.runtimes.container",
}


def run(call: Call) -> Outcome:
    """Run the action to its end, or to its time limit. A result is always ready to be stored:
    plain JSON without NUL characters, lone surrogates or NaN."""
    try:
        runtime = load(call.runtime)
    except LookupError:
        return failed(f"This worker has no runtime {call.runtime!r}.", by="worker")
    if lacking := _without_code(call):
        return lacking
    if call.runtime in BUILT_IN:
        return runtime.run(call)
    return _run_added(runtime, call)


def _without_code(call: Call) -> Outcome | None:
    """The outcome of an action whose pack's folder, or script, is not on this host. What Python
    loads into the worker's own process is tried: it may be in memory already."""
    is_imported_here = call.runtime == "python" and not call.options.get("process")
    if call.runtime in packs.WITHOUT_CODE or is_imported_here:
        return None
    if why := packs.missing_folder(call.pack_path):
        return unavailable(call, why, missing=call.pack)
    if call.runtime == "python":
        return None  # its own interpreter looks for the module
    why = packs.missing_entry_point(call.runtime, call.entry_point, pack_path=call.pack_path)
    return unavailable(call, why) if why else None


def _run_added(runtime: Runtime, call: Call) -> Outcome:
    """Somebody else's code: it may raise, and give what cannot be stored."""
    try:
        outcome = runtime.run(call)
        return Outcome(outcome.event, outcome.reason, results.storable(outcome.result))
    except results.NotStorable as error:
        return failed(str(error))
    except Exception as error:
        log.exception("runtime failed", runtime=call.runtime, execution_id=call.execution_id)
        return failed(results.text(f"Runtime {call.runtime}: {error!r}."), by="worker")


@functools.cache
def load(name: str) -> Runtime:
    """The runtime of this name. Raises LookupError, or what importing it does."""
    if name in BUILT_IN:
        return cast("Runtime", importlib.import_module(BUILT_IN[name]))
    for point in metadata.entry_points(group=packs.RUNTIMES_GROUP, name=name):
        return cast("Runtime", point.load())
    raise LookupError(name)


def in_process(runtime: str, options: Mapping[str, Any]) -> bool:
    """Whether such an action runs in the pool's own child or thread, and is stopped there."""
    if runtime in BUILT_IN:
        return packs.in_process(runtime, options)
    return bool(getattr(load(runtime), "in_process", True))


def names() -> list[str]:
    """All there are: the built-in ones, and those that an entry point adds."""
    added = {point.name for point in metadata.entry_points(group=packs.RUNTIMES_GROUP)}
    if taken := added & BUILT_IN.keys():
        log.warning("entry points cannot replace built-in runtimes", runtimes=sorted(taken))
    return [*BUILT_IN, *sorted(added - BUILT_IN.keys())]


def survey() -> dict[str, str]:
    """Every runtime, and why this worker cannot offer it; nothing if it can."""
    return {name: _why_not(name) for name in names()}


def offered() -> list[str]:
    """What this worker can run, as it tells the fleet. Says of the others why not."""
    found = survey()
    for name, why_not in found.items():
        if why_not:
            log.info("runtime not offered", runtime=name, why=why_not)
    return [name for name, why_not in found.items() if not why_not]


def _why_not(name: str) -> str:
    try:
        told: Any = load(name).why_not()
    except Exception as error:  # noqa: BLE001 - one that cannot be loaded must not stop the others
        return f"it cannot be loaded: {error!r}"
    return str(told or "")
